//! Parts of the source that fail while the others go on: into the log, the events and the stats.

use std::fmt;
use std::hash::Hash;

use keylane_rt::clock::{self, Instant};
use keylane_source::Source;

use super::super::parts::Saying;
use super::state::Driver;
use crate::watching::SourceEvent;

impl<K, M, O, E, S> Driver<K, M, O, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    S: Source<Message = M>,
{
    /// Takes what the source says of its parts.
    pub(super) fn hear_of_parts(&mut self) {
        let news = self.deliveries.take_parts();
        if news.is_empty() {
            return;
        }
        let now = clock::now();
        for news in news {
            if let Some(saying) = self.parts.hear(news, now) {
                self.say(saying);
            }
        }
        let failed = self.parts.seen();
        self.publish(|stats| stats.failed_parts = failed);
    }

    /// Says again which parts fail still.
    pub(super) fn remind_of_parts(&mut self, now: Instant) {
        for saying in self.parts.due(now) {
            self.say(saying);
        }
    }

    fn say(&self, saying: Saying) {
        let source = &self.name;
        match saying {
            Saying::Failed { part, why } => {
                tracing::warn!(
                    target: "keylane",
                    %source, %part, error = %why,
                    "a part of the source failed, will retry; the other parts continue"
                );
                self.notify(SourceEvent::PartFailed { part, why });
            }
            Saying::Fails {
                part,
                why,
                lasted,
                times,
            } => {
                tracing::warn!(
                    target: "keylane",
                    %source, %part, error = %why, elapsed = ?lasted, failures = times,
                    "a part of the source is still failing, will retry"
                );
            }
            Saying::Recovered { part, lasted } => {
                tracing::info!(
                    target: "keylane",
                    %source, %part, elapsed = ?lasted,
                    "a part of the source works again"
                );
                self.notify(SourceEvent::PartRecovered { part, lasted });
            }
        }
    }
}
