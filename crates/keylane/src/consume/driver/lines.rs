//! Lines of the log about messages, with the positions of those.

use keylane_rt::cut;
use keylane_rt::unwind::caught;
use keylane_source::Source;

use super::task::Driver;
use crate::observe::message_line::Origin;
use crate::types::{Error, Key, Message, Output};

/// Most characters of a position or an id in a line.
const LONGEST: usize = 256;

impl<K: Key, M: Message, O: Output, E: Error, S: Source<Message = M>> Driver<K, M, O, E, S> {
    /// Writes the lines that the engine has left, each with the source, the position and the id of
    /// its message.
    pub(super) fn write_lines(&mut self) {
        for (slot, line) in self.news.lines.drain(..) {
            let names = self.machine.core.names_of(slot);
            let position = names.map(|(position, _)| {
                // It is the source's own code.
                let described = caught(|| self.source.describe(position));
                cut(described.unwrap_or_else(|_| UNKNOWN.to_owned()), LONGEST)
            });
            let origin = Origin {
                source: self.machine.name(),
                position: position.as_deref(),
                id: names.and_then(|(_, id)| id),
            };
            // As in the engine, a subscriber that panics ends the dispatcher.
            if caught(|| line.write(Some(&origin))).is_err() {
                self.machine.port.abort();
            }
        }
    }
}

/// What a line shows instead of a position, if the source panics.
const UNKNOWN: &str = "a position whose description panics";
