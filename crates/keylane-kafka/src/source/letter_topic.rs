//! Whether the topic of the dead letters takes letters.

use std::time::Duration;

use keylane_source::SourceError;
use tokio::time::Instant;

use super::failures::{Failures, Trouble};
use super::job::job;
use crate::letters::DeadLetterTopic;
use crate::link::Job;
use crate::producer::SendError;

/// The timeout of a request.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// The pause before the next request while the topic takes none.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The looks at the topic. The first one also connects, so that the first letter is not late.
#[derive(Default)]
pub(super) struct LetterTopic {
    /// When to look next.
    pub(super) at: Option<Instant>,
    pub(super) asked: Option<Job<Result<(), SendError>>>,
    is_failing: bool,
}

impl LetterTopic {
    pub(super) fn look_now(&mut self) {
        self.at = Some(Instant::now());
    }

    /// Asks for the topic, if there is one and it is time for that.
    pub(super) fn ask_if_due(
        &mut self,
        letters: Option<&DeadLetterTopic>,
    ) -> Result<(), SourceError> {
        let is_due = |at: &mut Instant| *at <= Instant::now();
        if self.asked.is_none() && self.at.take_if(is_due).is_some() {
            self.asked = letters
                .cloned()
                .map(|letters| job(move || letters.look(ASKED_FOR)))
                .transpose()?;
        }
        Ok(())
    }

    /// Processes the answer. A topic that takes no letters is a failed part of the source until it
    /// takes them: the keys of the letters wait.
    pub(super) fn follow(
        &mut self,
        answer: Result<(), SendError>,
        letters: Option<&DeadLetterTopic>,
        failures: &mut Failures,
    ) {
        let Some(topic) = letters.map(DeadLetterTopic::name) else {
            return;
        };
        match answer {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    failures.recover(topic, Trouble::Unread);
                }
            }
            Err(error) => {
                let why = format!("dead letters cannot be written, so their keys wait: {error}");
                failures.fail(topic, Trouble::Unread, why);
                self.is_failing = true;
                self.at = Some(Instant::now() + AGAIN_AFTER);
            }
        }
    }
}
