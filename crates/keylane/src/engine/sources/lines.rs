//! Lines of the log about messages, which the drivers of their sources write.

use std::sync::Arc;

use keylane_rt::atomic::Ordering;
use keylane_rt::lock;
use tracing::Level;

use super::{SourceSlot, Sources};
use crate::observe::message_line::{MessageLine, Origin, What, is_logged};
use crate::observe::trace::Shown;

/// Most lines that wait for a driver. It may be in a call of its source, and messages fail
/// meanwhile.
const MOST: usize = 1024;

impl Sources {
    /// Logs what has happened to a message. Of a message of a source, the driver writes the line,
    /// because it knows the position. If it is too far behind, the line is written here, without
    /// the position; if it is gone, also without the source: no line is lost.
    ///
    /// Called before the message settles. Never under a lock, because it formats the user's key.
    pub(crate) fn log<K>(
        &self,
        level: Level,
        key: Shown<'_, K>,
        at: Option<SourceSlot>,
        what: impl FnOnce() -> What,
    ) {
        if is_logged(level) {
            let line = MessageLine {
                key: key.to_string(),
                what: what(),
            };
            self.push_line(at, line, || true);
        }
    }

    /// Logs what happens to a message in its handler, outside its runner. `is_there`: whether it is
    /// still there; asked while it cannot settle. If not, its slot may be another one's, and the
    /// line is written without the position.
    pub(crate) fn log_at_once(
        &self,
        at: Option<SourceSlot>,
        line: MessageLine,
        is_there: impl FnOnce() -> bool,
    ) {
        if is_logged(line.what.level()) {
            self.push_line(at, line, is_there);
            // No runner may come by that wakes them.
            self.wake();
        }
    }

    /// Does the same while no driver runs: now, without the position, and once more with the
    /// position when the driver runs again.
    pub(crate) fn log_now_and_later(
        &self,
        at: Option<SourceSlot>,
        line: MessageLine,
        later: What,
        is_there: impl FnOnce() -> bool,
    ) {
        let later = MessageLine {
            key: line.key.clone(),
            what: later,
        };
        // First, because the message may settle while the subscriber writes a line.
        if let Some(at) = at
            && is_logged(later.what.level())
        {
            let _ = self.give(at, later, is_there);
        }
        self.log_at_once(at, line, || false);
    }

    /// Gives a line to the driver, or writes it.
    fn push_line(
        &self,
        at: Option<SourceSlot>,
        line: MessageLine,
        is_there: impl FnOnce() -> bool,
    ) {
        let Some(at) = at else {
            return line.write(None);
        };
        let Err((line, source)) = self.give(at, line, is_there) else {
            return;
        };
        let origin = source.as_deref().map(|source| Origin {
            source,
            position: None,
            id: None,
        });
        line.write(origin.as_ref());
    }

    /// Gives a line to the driver. Returns it with the name of the source if the driver is too far
    /// behind or the message is not there any more; without the name if the driver is gone.
    fn give(
        &self,
        at: SourceSlot,
        line: MessageLine,
        is_there: impl FnOnce() -> bool,
    ) -> Result<(), (MessageLine, Option<Arc<str>>)> {
        let mut outboxes = lock(&self.outboxes);
        let Some(outbox) = &mut outboxes[at.source as usize] else {
            return Err((line, None));
        };
        if outbox.news.lines.len() < MOST && is_there() {
            outbox.news.lines.push((at.slot, line));
            outbox.news.is_urgent = true;
            self.unread.store(true, Ordering::Relaxed);
            return Ok(());
        }
        Err((line, Some(Arc::clone(&outbox.name))))
    }
}
