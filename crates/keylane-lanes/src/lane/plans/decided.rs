//! The result of an operator's decision.

use keylane_rt::clock::Instant;

use super::super::plan::Sequencer;
use super::super::testing::{TestEffects, TestLane, rare};
use super::super::{Decision, Left, Out, State, Taken, Timer, Undecidable, WaitReason};
use crate::rules::TICK;

/// What a decision comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Went {
    /// The head goes out.
    Out,
    /// The head, or the first of what is parked, settles.
    Skipped,
    /// The missing versions are given up.
    GivenUp,
    /// The missing versions are waited for once more.
    WaitsAnew,
    /// The lane is asked for its next message.
    Asked,
    Emptied,
    Paused,
    /// Nothing else happens, or not yet.
    Nothing,
}

/// What a decision should come to.
pub(super) fn told(lane: &TestLane, decision: Decision, now: Instant) -> Result<Went, Undecidable> {
    let parked = !lane.parked().is_empty();
    Ok(match (decision, lane.state()) {
        (Decision::Pause, _) => Went::Paused,
        (Decision::Purge, _) => Went::Emptied,
        (Decision::Resume, state) if lane.is_paused() => match state {
            State::Waiting {
                reason: WaitReason::Load | WaitReason::Record,
                ..
            } => Went::Nothing,
            State::Waiting { .. } => Went::Asked,
            State::Backoff { until, timer, .. }
                if *timer != Timer::Armed || *until <= now + TICK =>
            {
                Went::Out
            }
            _ => Went::Nothing,
        },
        (Decision::Resume, State::Halted { .. }) => Went::Out,
        (Decision::Resume, _) if lane.state().wait_reason() == Some(WaitReason::HaltedGap) => {
            Went::WaitsAnew
        }
        (Decision::Resume, _) => return Err(Undecidable::Nothing),
        (_, State::Entered | State::Ready | State::Running { .. }) => {
            return Err(Undecidable::InFlight);
        }
        (Decision::RetryNow, State::Backoff { timer, .. })
            if !lane.is_paused() && *timer != Timer::Unleased =>
        {
            Went::Out
        }
        (Decision::RetryNow, _) => return Err(Undecidable::Nothing),
        (Decision::Replace, State::Backoff { .. } | State::Halted { .. }) => Went::Out,
        (Decision::Replace, _) if parked => Went::Nothing,
        (Decision::Skip, State::Backoff { .. } | State::Halted { .. }) => Went::Skipped,
        (Decision::Skip, _) if lane.state().waits_for_version() => Went::GivenUp,
        (Decision::Skip, _) if parked => Went::Skipped,
        (Decision::Replace | Decision::Skip, _) if lane.more.is_merging() => {
            return Err(Undecidable::InFlight);
        }
        (Decision::Replace | Decision::Skip, _) => return Err(Undecidable::Nothing),
    })
}

/// What a decision has come to.
pub(super) fn went(lane: &TestLane, decision: Decision, effects: &TestEffects) -> Went {
    let skipped = effects
        .left
        .as_slice()
        .iter()
        .any(|(_, why)| *why == Left::Skipped);
    let skips = skipped || matches!(rare(effects).taken, Some((_, Taken::Skipped)));
    match (decision, &effects.out) {
        (Decision::Purge, _) => {
            assert!(
                lane.parked().is_empty()
                    && lane.state().head().is_none()
                    && lane.sequencer().and_then(Sequencer::first_early).is_none()
            );
            assert!(
                effects
                    .left
                    .as_slice()
                    .iter()
                    .all(|(_, why)| *why == Left::Purged)
            );
            assert!(!matches!(rare(effects).taken, Some((_, Taken::Skipped))));
            Went::Emptied
        }
        (Decision::Pause, _) => {
            assert!(lane.is_paused());
            Went::Paused
        }
        (Decision::Skip, _) if skips => Went::Skipped,
        (Decision::Skip, _) => {
            assert!(!lane.state().waits_for_version() || lane.parked().is_empty());
            Went::GivenUp
        }
        (_, Out::Head { .. }) => Went::Out,
        (Decision::Resume, Out::Lane { .. }) => Went::Asked,
        (Decision::Resume, _) if rare(effects).gap_until.is_some() => {
            assert_eq!(lane.state().wait_reason(), Some(WaitReason::Gap));
            Went::WaitsAnew
        }
        _ => Went::Nothing,
    }
}
