//! What workers and their test write into a journal during an election.

use crate::{Entry, Journal};

/// What a line is about. Its numbers are below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A candidate sees a leader: its token.
    Sees,
    /// `inaugurate` is about to return `Ok`: the token.
    Inaugurated,
    /// `execute` was called: the token.
    Executes,
    /// It begins a write: the token, the number of the write.
    Writes,
    /// The fenced sink has answered, also after `execute` was dropped: the same numbers.
    Accepted,
    Refused,
    Unknown,
    /// `execute` has returned, or was dropped: the token.
    Stopped,
    /// `hand_over` was called: the token, and whether the term was lost.
    HandsOver,
    /// It is about to return: the token, and whether the term is still held.
    HandedOver,
    /// The test does something: the code of the fault, the token of the leader, and the process
    /// that is to succeed, or 0.
    Fault,
    /// From here to the next fault the leader is to stay: its token, and whether its loss is no
    /// excuse.
    Stays,
    /// A process was killed, is about to be paused, or goes on: its id.
    Killed,
    Paused,
    Resumed,
}

impl Event {
    const ALL: [(Self, char); 15] = [
        (Self::Sees, 'l'),
        (Self::Inaugurated, 'i'),
        (Self::Executes, 'x'),
        (Self::Writes, 'w'),
        (Self::Accepted, 'a'),
        (Self::Refused, 'r'),
        (Self::Unknown, 'u'),
        (Self::Stopped, 's'),
        (Self::HandsOver, 'h'),
        (Self::HandedOver, 'o'),
        (Self::Fault, 'f'),
        (Self::Stays, 'y'),
        (Self::Killed, 'k'),
        (Self::Paused, 'p'),
        (Self::Resumed, 'c'),
    ];

    fn letter(self) -> char {
        let found = Self::ALL.iter().find(|(event, _)| *event == self);
        found.expect("all events are listed").1
    }

    pub(crate) fn of(line: &Entry) -> Self {
        let found = Self::ALL.iter().find(|(_, letter)| *letter == line.what);
        found
            .unwrap_or_else(|| panic!("`{}` is not written", line.what))
            .0
    }

    pub(crate) fn write(self, journal: &Journal, numbers: [u64; 3]) {
        journal.write(self.letter(), &numbers);
    }
}
