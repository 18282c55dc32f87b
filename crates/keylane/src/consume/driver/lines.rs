//! Where messages come from: in the lines of the log about them, and for those who inspect a lane;
//! and which ones hold the source back.

use keylane_rt::oneshot;
use keylane_rt::unwind::caught;
use keylane_source::Source;

use super::task::Driver;
use crate::engine::{Front, OriginsRequest};
use crate::lane::MessageOrigin;
use crate::observe::message_line::Origin;
use crate::types::{Error, Key, Message, Output};

impl<K: Key, M: Message, O: Output, E: Error, S: Source<Message = M>> Driver<K, M, O, E, S> {
    /// Writes the lines that the engine has left, each with the source, the position and the id of
    /// its message.
    pub(super) fn write_lines(&mut self) {
        for (slot, line) in self.news.lines.drain(..) {
            let names = self.machine.core.names_of(slot);
            let position = names.map(|(position, _)| self.machine.describer.describe(position));
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

    /// Answers where messages come from.
    pub(super) fn tell_origins(&self, asked: Vec<OriginsRequest>) {
        let core = &self.machine.core;
        let origin = |slot: u32| {
            Some(MessageOrigin {
                source: self.machine.name().to_owned(),
                position: self.machine.describer.describe(core.held_position(slot)?),
            })
        };
        for request in asked {
            let origins = request.slots.into_iter().map(origin).collect();
            // Without a receiver nothing waits for them any more.
            let _ = request.done.send(origins);
        }
    }

    /// Answers which messages hold the source back.
    pub(super) fn tell_fronts(&self, asked: Vec<oneshot::Sender<Vec<Front>>>) {
        let asked = asked.into_iter().filter(|done| !done.is_closed());
        let asked: Vec<_> = asked.collect();
        if asked.is_empty() {
            return;
        }
        let fronts = self.machine.core.fronts();
        let fronts = fronts.into_iter().map(|(position, hash)| Front {
            hash,
            origin: MessageOrigin {
                source: self.machine.name().to_owned(),
                position: self.machine.describer.describe(position),
            },
        });
        let fronts: Vec<Front> = fronts.collect();
        for done in asked {
            // As above.
            let _ = done.send(fronts.clone());
        }
    }
}
