//! Why a lane waits, in words.

use std::time::Duration;

use keylane::watching::{LaneState, LaneView};

/// From when on a lane counts as stuck that is neither failing nor stopped.
const LONG: Duration = Duration::from_millis(500);

/// A lane's state: a word, a sentence, and whether it is stuck.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) state: &'static str,
    pub(crate) sentence: String,
    pub(crate) is_stuck: bool,
}

impl Why {
    pub(crate) fn of(view: &LaneView) -> Self {
        let (state, sentence, is_stuck) = match &view.state {
            LaneState::Ready => (
                "ready",
                "its next order waits for a free handler".into(),
                false,
            ),
            LaneState::Running { attempt, lasted } => (
                "running",
                format!("attempt {attempt} has run for {}", seconds(*lasted)),
                *lasted >= LONG,
            ),
            LaneState::Backoff {
                next_attempt,
                due_in,
                why,
            } => (
                "failing",
                format!(
                    "attempt {next_attempt} comes in {}: {why}",
                    seconds(*due_in)
                ),
                true,
            ),
            LaneState::DeadLettering {
                refusals,
                due_in,
                why,
            } => (
                "failing",
                format!(
                    "its dead letter was refused {refusals} times, and is offered again in {}: {why}",
                    seconds(*due_in)
                ),
                true,
            ),
            LaneState::Halted { attempts, why } => (
                "halted",
                format!("given up on after {attempts} attempts, and waits for a decision: {why}"),
                true,
            ),
            LaneState::Paused => ("paused", "an operator has paused it".into(), true),
            LaneState::RateLimited { due_in } => (
                "limited",
                format!("above its rate; goes on in {}", seconds(*due_in)),
                false,
            ),
            other => ("waiting", format!("{other:?}"), true),
        };
        Self {
            state,
            sentence,
            is_stuck,
        }
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
