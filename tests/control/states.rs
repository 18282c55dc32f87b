//! A lane in each state it can be in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keylane::watching::LaneState;
use keylane::{OnExhausted, Rate, Retry};
use keylane_testkit::scenario::{
    MS, Message, ScriptedDispatcher, ScriptedReceipt, check_waits, settle,
};
use keylane_testkit::{Act, History, LetterBox, ScriptError};

use crate::support::{HOUR, Recorder, at, dispatcher, rounded, send_all, submit_all};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    /// The turn is in the ready queue.
    Ready,
    /// The lane's call is in the ready queue.
    Called,
    Running,
    Backoff,
    Halted,
    /// The dead-letter sink has refused.
    Refused,
    PausedEmpty,
    Paused,
    PausedBackoff,
    /// Paused after the time of its retry has come.
    PausedDue,
    PausedHalted,
    RateLimited,
    Delayed,
    Lingering,
}

impl State {
    pub(crate) const ALL: [Self; 15] = [
        Self::Absent,
        Self::Ready,
        Self::Called,
        Self::Running,
        Self::Backoff,
        Self::Halted,
        Self::Refused,
        Self::PausedEmpty,
        Self::Paused,
        Self::PausedBackoff,
        Self::PausedDue,
        Self::PausedHalted,
        Self::RateLimited,
        Self::Delayed,
        Self::Lingering,
    ];

    pub(crate) fn is_paused(self) -> bool {
        matches!(
            self,
            Self::PausedEmpty
                | Self::Paused
                | Self::PausedBackoff
                | Self::PausedDue
                | Self::PausedHalted
        )
    }

    /// Whether messages 1 and 2 are in the lane.
    pub(crate) fn holds(self) -> bool {
        !matches!(self, Self::Absent | Self::PausedEmpty)
    }

    fn fits(self, seen: Option<&LaneState>) -> bool {
        match self {
            Self::Absent => seen.is_none(),
            Self::Ready | Self::Called => seen == Some(&LaneState::Ready),
            Self::Running => matches!(seen, Some(LaneState::Running { attempt: 1, .. })),
            Self::Backoff => {
                matches!(
                    seen,
                    Some(LaneState::Backoff {
                        next_attempt: 2,
                        ..
                    })
                )
            }
            // Two resumes: the pause does not hide the error.
            Self::Halted | Self::PausedHalted => {
                matches!(seen, Some(LaneState::Halted { attempts: 1, .. }))
            }
            Self::Refused => matches!(seen, Some(LaneState::DeadLettering { refusals: 1, .. })),
            Self::PausedEmpty | Self::Paused | Self::PausedBackoff | Self::PausedDue => {
                seen == Some(&LaneState::Paused)
            }
            Self::RateLimited => matches!(seen, Some(LaneState::RateLimited { .. })),
            Self::Delayed => matches!(seen, Some(LaneState::Delayed { .. })),
            Self::Lingering => matches!(seen, Some(LaneState::Lingering { .. })),
        }
    }
}

/// Brings the lane of key 1 into a state, with messages 1 and 2 in it where it holds any.
///
/// Message 1 fails at its first call where the state is about that, and always where a sink is.
pub(crate) async fn arrange(state: State) -> (Recorder, ScriptedDispatcher, Vec<ScriptedReceipt>) {
    let recorder = Recorder::new();
    let calls = Arc::new(AtomicU32::new(0));
    let act = move |id: u64, _: u32| match (id, state) {
        (1, State::Refused) => Act::error(),
        (
            1,
            State::Backoff
            | State::Halted
            | State::PausedBackoff
            | State::PausedDue
            | State::PausedHalted,
        ) if calls.fetch_add(1, Ordering::Relaxed) == 0 => Act::error(),
        (1, State::Running) | (90, _) => Act::ok().sleeps(100 * MS),
        _ => Act::ok(),
    };
    let builder = dispatcher();
    let spawned = match state {
        State::Ready => builder.concurrency(1).spawn(recorder.handler(act)),
        State::Called => builder
            .concurrency(1)
            .expire_after(10 * HOUR)
            .rate_per_key(Rate::per(1_000_000, HOUR / 3_600))
            .spawn(recorder.handler(act)),
        State::Backoff | State::PausedBackoff => builder
            .retry(Retry::fixed(HOUR).max_attempts(2))
            .spawn(recorder.handler(act)),
        State::PausedDue => builder
            .retry(Retry::fixed(5 * MS).max_attempts(2))
            .spawn(recorder.handler(act)),
        State::Halted | State::PausedHalted => builder
            .on_exhausted(OnExhausted::Halt)
            .spawn(recorder.handler(act)),
        State::Refused => builder
            .on_exhausted(OnExhausted::dead_letter(
                LetterBox::new(&History::new())
                    .refuses(1)
                    .sink(|message: &Message| message.id),
            ))
            .spawn(recorder.handler(act)),
        State::RateLimited => builder
            .rate_per_key(Rate::per(1, HOUR))
            .spawn(recorder.handler(act)),
        State::Lingering => {
            builder
                .batch(4, HOUR)
                .spawn_batches(|batch: Vec<Message>| async move {
                    Ok::<Vec<u64>, ScriptError>(batch.iter().map(|message| message.id).collect())
                })
        }
        _ => builder.spawn(recorder.handler(act)),
    };
    let dispatcher = spawned.unwrap();
    let lane = dispatcher.lane(&1);
    match state {
        State::Ready | State::Called => send_all(&dispatcher, 9, [90]).await,
        State::RateLimited => send_all(&dispatcher, 1, [0]).await,
        State::Paused | State::PausedEmpty => lane.pause(),
        _ => {}
    }
    settle().await;
    let mut receipts = Vec::new();
    if state == State::Delayed {
        receipts.push(
            dispatcher
                .submit_when(Message::new(1, 1), HOUR)
                .await
                .unwrap(),
        );
        receipts.extend(submit_all(&dispatcher, 1, [2]).await);
    } else if state.holds() {
        receipts = submit_all(&dispatcher, 1, [1, 2]).await;
    }
    settle().await;
    if matches!(
        state,
        State::PausedBackoff | State::PausedDue | State::PausedHalted
    ) {
        lane.pause();
    }
    at(&recorder, 10).await;
    let view = lane.inspect();
    let seen = view.as_ref().map(|view| &view.state);
    assert!(state.fits(seen), "{state:?}: {seen:?}");
    let depth = view.as_ref().map_or(0, |view| view.depth);
    assert_eq!(depth, if state.holds() { 2 } else { 0 }, "{state:?}");
    if let Some(view) = view
        && state != State::Ready
    {
        let age = state.holds().then_some(10);
        let seen = (rounded(view.head_age), rounded(view.oldest_waiting));
        assert_eq!(seen, (age, age), "{state:?}");
    }
    check_waits(&dispatcher, &[1, 9]);
    assert_eq!(
        dispatcher.stats().paused,
        usize::from(state.is_paused()),
        "{state:?}"
    );
    (recorder, dispatcher, receipts)
}
