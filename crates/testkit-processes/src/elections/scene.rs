//! Who leads, and who has seen it, as the journal says so far.

use std::collections::HashMap;
use std::time::Duration;

use super::record::Event;
use crate::Entry;

/// A leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leading {
    pub(super) process: u32,
    pub(super) token: u64,
}

/// What a test needs to know to disturb an election.
#[derive(Debug, Default)]
pub(super) struct Scene {
    /// The last one that was inaugurated.
    last: Option<Leading>,
    /// Whether it executes.
    is_executing: bool,
    /// The token that each process has seen last.
    seen: HashMap<u32, u64>,
    /// When a write was accepted last, under the last token.
    accepted_at: Option<Duration>,
}

impl Scene {
    pub(super) fn hear(&mut self, line: &Entry) {
        let (process, token) = (line.process, line.numbers[0]);
        let own = Leading { process, token };
        match Event::of(line) {
            Event::Sees => _ = self.seen.insert(process, token),
            Event::Inaugurated if self.token() < token => {
                (self.last, self.accepted_at) = (Some(own), None);
            }
            Event::Executes if self.last == Some(own) => self.is_executing = true,
            Event::Stopped if self.last == Some(own) => self.is_executing = false,
            Event::Accepted if self.last == Some(own) => self.accepted_at = Some(line.at),
            _ => {}
        }
    }

    /// The last token that led; 0 if there was none.
    pub(super) fn token(&self) -> u64 {
        self.last.map_or(0, |last| last.token)
    }

    /// Returns the leader that has written since then, if all these processes know it.
    pub(super) fn settled(&self, processes: &[u32], since: Duration) -> Option<Leading> {
        let leader = self.last.filter(|_| self.is_executing)?;
        let knows = |process: &u32| {
            *process == leader.process || self.seen.get(process) == Some(&leader.token)
        };
        let is_known = processes.contains(&leader.process) && processes.iter().all(knows);
        let has_written = self.accepted_at.is_some_and(|at| at > since);
        (is_known && has_written).then_some(leader)
    }

    pub(super) fn has_seen(&self, process: u32, token: u64) -> bool {
        self.seen.get(&process) == Some(&token)
    }
}
