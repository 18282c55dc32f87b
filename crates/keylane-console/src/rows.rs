//! One lane, as the feed shows it. Pure.

use std::time::Duration;

use keylane::watching::{LaneState, LaneView};
use serde::Serialize;

/// Most characters of a key and of a reason in the feed.
pub(crate) const MOST_CHARS: usize = 256;

/// One lane.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// Names the lane in requests.
    pub(crate) id: String,
    /// The key, cut to 256 characters.
    pub(crate) key: String,
    /// The number of characters of the whole key.
    pub(crate) key_chars: usize,
    pub(crate) depth: usize,
    /// The age of the oldest message, as far as it is known.
    pub(crate) age_ms: u64,
    /// The time that its handlers have waited in the last minutes.
    pub(crate) busy_ms: u64,
    pub(crate) full: bool,
    /// The fencing token of the lease of its key, while it is held here. As text: it is a number of
    /// 64 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<String>,
    pub(crate) state: &'static str,
    /// What ends this state.
    pub(crate) ends: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
    /// The time until it ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_ms: Option<u64>,
    /// The time for which the handler has run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ran_ms: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
}

/// What is needed to name a lane of any dispatcher, and to lead to its page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LaneName {
    pub(crate) dispatcher: String,
    pub(crate) id: String,
    /// The key, cut to 256 characters.
    pub(crate) key: String,
    pub(crate) key_chars: usize,
}

impl Row {
    /// A lane without messages.
    pub(crate) fn empty(id: String, key: &str) -> Self {
        Self {
            id,
            key: cut(key),
            key_chars: key.chars().count(),
            depth: 0,
            age_ms: 0,
            busy_ms: 0,
            full: false,
            lease: None,
            state: "empty",
            ends: "a message of this key",
            attempt: None,
            due_ms: None,
            ran_ms: None,
            why: String::new(),
        }
    }

    pub(crate) fn of(id: String, key: &str, view: LaneView) -> Self {
        let age = view.head_age.into_iter().chain(view.oldest_waiting).max();
        let row = Self {
            depth: view.depth,
            age_ms: ms(age.unwrap_or_default()),
            full: view.full,
            lease: view.lease.map(|token| token.to_string()),
            ..Self::empty(id, key)
        };
        row.in_state(view.state)
    }

    fn in_state(self, state: LaneState) -> Self {
        match state {
            LaneState::Ready => self.named("ready", "a runner that is free"),
            LaneState::Running { attempt, lasted } => Self {
                attempt: Some(attempt),
                ran_ms: Some(ms(lasted)),
                ..self.named("running", "the end of its handler")
            },
            LaneState::Backoff {
                next_attempt,
                due_in,
                why,
            } => Self {
                attempt: Some(next_attempt),
                why: cut(&why),
                ..self.named("backoff", "the next attempt").due(due_in)
            },
            LaneState::DeadLettering {
                refusals,
                due_in,
                why,
            } => Self {
                attempt: Some(refusals),
                why: cut(&why),
                ..self
                    .named("dead_lettering", "a sink that accepts the letter")
                    .due(due_in)
            },
            LaneState::Halted { attempts, why } => Self {
                attempt: Some(attempts),
                why: cut(&why),
                ..self.named("halted", "an operator: resume, skip or replace")
            },
            LaneState::Paused => self.named("paused", "an operator: resume"),
            LaneState::RateLimited { due_in } => self
                .named("rate_limited", "the rate of its key")
                .due(due_in),
            LaneState::Delayed { due_in } => self.named("delayed", "its time").due(due_in),
            LaneState::Lingering { due_in } => self
                .named("lingering", "a full batch, or its time")
                .due(due_in),
            LaneState::Leasing => self.named("leasing", "the lease of its key"),
            LaneState::Loading => self.named("loading", "the answer of the version store"),
            LaneState::Gap {
                first,
                last,
                due_in,
            } => {
                let row = Self {
                    why: format!("versions {first} to {last} are missing"),
                    ..self.named(
                        "gap",
                        "the missing versions, or an operator: resume or skip",
                    )
                };
                match due_in {
                    Some(due_in) => row.due(due_in),
                    None => row,
                }
            }
            // The states of a later version.
            _ => self.named("waiting", "unknown to this version of the console"),
        }
    }

    fn named(self, state: &'static str, ends: &'static str) -> Self {
        Self {
            state,
            ends,
            ..self
        }
    }

    fn due(self, due_in: Duration) -> Self {
        Self {
            due_ms: Some(ms(due_in)),
            ..self
        }
    }
}

pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The first characters of a text.
pub(crate) fn cut(text: &str) -> String {
    cut_to(text, MOST_CHARS)
}

pub(crate) fn cut_to(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_is_cut_between_characters_and_its_length_is_said() {
        let row = Row::empty("1".into(), &"漢".repeat(10_000));
        assert_eq!(row.key, "漢".repeat(MOST_CHARS));
        assert_eq!(row.key_chars, 10_000);
    }

    #[test]
    fn every_wait_says_what_ends_it() {
        let second = Duration::from_secs(1);
        let state = |state| Row::empty("1".into(), "k").in_state(state);
        let row = state(LaneState::Backoff {
            next_attempt: 3,
            due_in: second,
            why: "no".into(),
        });
        assert_eq!(
            (row.state, row.attempt, row.due_ms),
            ("backoff", Some(3), Some(1_000))
        );
        assert_eq!((row.ends, &*row.why), ("the next attempt", "no"));
        let row = state(LaneState::Gap {
            first: 2,
            last: 4,
            due_in: None,
        });
        assert_eq!(
            (row.due_ms, &*row.why),
            (None, "versions 2 to 4 are missing")
        );
        assert_eq!(state(LaneState::Paused).ends, "an operator: resume");
    }
}
