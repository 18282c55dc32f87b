//! Counts attempts in the file of start marks, before they start.

use std::sync::Arc;

use keylane_rt::shown_key;
use keylane_source::{Outcome, StartGuard, StartLater};

use super::position::InboxPosition;
use crate::attempts::Marks;

pub(super) struct MarkGuard {
    pub(super) marks: Arc<Marks>,
    /// The name of the source, for the log.
    pub(super) name: String,
}

/// One line about a message: the fields of all such lines, and its own.
macro_rules! line {
    ($level:ident, $guard:expr, $position:expr, $($fields:tt)*) => {
        tracing::$level!(
            target: "keylane",
            key = %shown_key(Some(&$position.key)),
            source = %$guard.name,
            position = %$position.place(),
            id = $position.id.as_deref().map(String::from_utf8_lossy).map(display),
            $($fields)*
        )
    };
}

impl StartGuard<InboxPosition> for MarkGuard {
    fn starts(&self, slot: u32, position: &InboxPosition, attempt: u32) -> Result<(), StartLater> {
        let counted = self.marks.start(slot, position.sequence, attempt);
        counted.map_err(|error| {
            line!(error, self, position, attempt, %error, "could not count an attempt, will retry");
            error.into()
        })
    }

    fn settles(&self, slot: u32, position: &InboxPosition, outcome: Outcome) {
        let told = match outcome {
            Outcome::Returned { attempts, .. } => {
                self.marks.give_back(slot, position.sequence, attempts)
            }
            // A mark that stays is dropped at the next open, unless the letter of its message waits
            // again by then. The same applies to a mark of a message that became a letter before it
            // started.
            _ => self
                .marks
                .settle(slot)
                .and_then(|()| self.marks.forget(&[position.sequence])),
        };
        if let Err(error) = told {
            line!(warn, self, position, %error, "a start mark could not be updated");
        }
    }
}

#[cfg(test)]
mod tests {
    use keylane_testkit::Lines;

    use super::*;

    #[test]
    fn marks_that_cannot_be_written_are_logged_with_their_message() {
        let directory = tempfile::tempdir().unwrap();
        let guard = MarkGuard {
            marks: Arc::new(Marks::read_only(&directory.path().join("starts"))),
            name: "inbox orders".to_owned(),
        };
        let position = InboxPosition {
            sequence: 7,
            key: "user-7".into(),
            id: Some("order-4711".into()),
            opening: 1,
        };
        let lines = Lines::new();
        let subscriber = tracing_subscriber::fmt().with_writer(lines.writer());
        let _on = keylane_testkit::set_subscriber(subscriber.with_ansi(false).finish());
        guard.starts(0, &position, 2).unwrap_err();
        guard.settles(0, &position, Outcome::returned(1));
        guard.settles(0, &position, Outcome::Done);
        let all = lines.all();
        assert!(all.len() >= 2, "{all:?}");
        for line in all {
            assert!(line.contains(" key=#"), "{line}");
            let named = "source=inbox orders position=sequence 7 id=order-4711 ";
            assert!(line.contains(named), "{line}");
        }
    }
}
