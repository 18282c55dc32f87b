//! What workers and their test write into a journal when a server fails over.

use std::time::Duration;

use crate::{Journal, Line};

/// A line about a message has its key, its id and its fencing token.
pub type Entry = Line<3>;

/// What a line is about. The first three are about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An attempt began.
    Start,
    /// It succeeded.
    Done,
    /// It was dropped.
    Dropped,
    /// A worker was killed: the first number is its process.
    Killed,
    /// A fault of the server. What it has confirmed is kept.
    Fault,
    /// A fault of the server that may lose what it has confirmed: its history ends.
    Lossy,
    /// Another history has begun.
    History,
}

impl Event {
    const ALL: [(Self, char); 7] = [
        (Self::Start, 's'),
        (Self::Done, 'e'),
        (Self::Dropped, 'd'),
        (Self::Killed, 'k'),
        (Self::Fault, 'f'),
        (Self::Lossy, 'l'),
        (Self::History, 'h'),
    ];

    pub(crate) fn letter(self) -> char {
        let found = Self::ALL.iter().find(|(event, _)| *event == self);
        found.expect("all events are listed").1
    }

    pub(crate) fn of(line: &Entry) -> Self {
        let found = Self::ALL.iter().find(|(_, letter)| *letter == line.what);
        found
            .unwrap_or_else(|| panic!("`{}` is not written", line.what))
            .0
    }
}

impl Journal {
    /// In a worker: records an attempt at a message, which takes so long. It may be dropped.
    ///
    /// # Panics
    ///
    /// Panics if the journal cannot be written.
    pub async fn attempt(&self, key: u64, id: u64, token: u64, takes: Duration) {
        let write = |event: Event| self.write(event.letter(), &[key, id, token]);
        write(Event::Start);
        let mut end = OnDrop {
            write,
            event: Event::Dropped,
        };
        tokio::time::sleep(takes).await;
        end.event = Event::Done;
    }

    pub(crate) fn event(&self, event: Event, number: u64) {
        self.write(event.letter(), &[number, 0, 0]);
    }
}

/// Records how an attempt ended.
struct OnDrop<W: Fn(Event)> {
    write: W,
    event: Event,
}

impl<W: Fn(Event)> Drop for OnDrop<W> {
    fn drop(&mut self) {
        (self.write)(self.event);
    }
}
