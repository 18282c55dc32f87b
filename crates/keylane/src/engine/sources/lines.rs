//! Lines of the log about messages, which the drivers of their sources write.

use keylane_rt::atomic::Ordering;
use keylane_rt::lock;
use tracing::Level;

use super::{SourceSlot, Sources};
use crate::observe::message_line::{MessageLine, What, is_logged};
use crate::observe::trace::Shown;

/// Most lines that wait for a driver. It may be in a call of its source, and messages fail
/// meanwhile.
const MOST: usize = 1024;

impl Sources {
    /// Logs what has happened to a message. Of a message of a source, the driver writes the line,
    /// because it knows the position. If it is gone or too far behind, the line is written here,
    /// without the position: no line is lost.
    ///
    /// Called before the message settles. Never under a lock, because it formats the user's key.
    pub(crate) fn log<K>(
        &self,
        level: Level,
        key: Shown<'_, K>,
        at: Option<SourceSlot>,
        what: impl FnOnce() -> What,
    ) {
        if !is_logged(level) {
            return;
        }
        let line = MessageLine {
            key: key.to_string(),
            what: what(),
        };
        let unwritten = match at {
            Some(at) => self.push_line(at, line),
            None => Some(line),
        };
        if let Some(line) = unwritten {
            line.write(None);
        }
    }

    /// Returns the line if its driver does not take it.
    fn push_line(&self, at: SourceSlot, line: MessageLine) -> Option<MessageLine> {
        let mut outboxes = lock(&self.outboxes);
        let outbox = outboxes[at.source as usize].as_mut();
        match outbox.filter(|outbox| outbox.news.lines.len() < MOST) {
            None => Some(line),
            Some(outbox) => {
                outbox.news.lines.push((at.slot, line));
                outbox.news.is_urgent = true;
                self.unread.store(true, Ordering::Relaxed);
                None
            }
        }
    }
}
