//! The stage of a shutdown, and the messages that are handed back until its end.

use std::fmt;

use futures::task::AtomicWaker;
use keylane_rt::atomic::{AtomicBool, AtomicU8, Ordering};
use keylane_rt::clock::Instant;
use keylane_rt::{Mutex, OwnLine, lock};
use tokio_util::sync::CancellationToken;

use super::report::HandedBack;

/// How far the end has come. It only ever grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stage {
    Open,
    /// No new messages; everything accepted is handled.
    Draining,
    /// No new messages; jobs in flight are finished, all other messages are handed back.
    Closing,
    /// Jobs in flight are dropped, and everything is handed back.
    Aborting,
    /// The report is final.
    Ended,
}

impl Stage {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Open,
            1 => Self::Draining,
            2 => Self::Closing,
            3 => Self::Aborting,
            _ => Self::Ended,
        }
    }
}

/// The state of the shutdown.
pub(crate) struct ShutdownState<K, M> {
    /// Partner of every read: `enter`. A runner that reads a late stage is caught by the router,
    /// which looks again after each flush.
    stage: OwnLine<AtomicU8>,
    /// The channel is closed and empty: no message of any key will come any more.
    intake_ended: AtomicBool,
    /// The dispatcher task was dropped early, and the jobs in flight end without it.
    orphaned: AtomicBool,
    /// A panic outside the handlers has ended the dispatcher.
    panicked: AtomicBool,
    deadline: Mutex<Deadline>,
    /// Wakes the router after the stage or a count has changed.
    router: AtomicWaker,
    /// Handlers may wait for this.
    pub(crate) cancel: CancellationToken,
    /// Cancelled when the report is final.
    ended: CancellationToken,
    returned: Mutex<HandedBackMessages<K, M>>,
}

#[derive(Debug, Default)]
struct Deadline {
    at: Option<Instant>,
    reached: bool,
}

struct HandedBackMessages<K, M> {
    messages: Vec<(u64, HandedBack<K, M>)>,
    interrupted: u64,
}

impl<K, M> ShutdownState<K, M> {
    pub(crate) fn new() -> Self {
        Self {
            stage: OwnLine(AtomicU8::new(Stage::Open as u8)),
            intake_ended: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            deadline: Mutex::new(Deadline::default()),
            router: AtomicWaker::new(),
            cancel: CancellationToken::new(),
            ended: CancellationToken::new(),
            returned: Mutex::new(HandedBackMessages {
                messages: Vec::new(),
                interrupted: 0,
            }),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        Stage::from_u8(self.stage.load(Ordering::SeqCst))
    }

    /// Whether anything is to be handed back instead of started.
    pub(crate) fn hands_back(&self) -> bool {
        self.stage() >= Stage::Closing
    }

    /// Moves on to a later stage; an earlier one changes nothing.
    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::SeqCst);
        if stage >= Stage::Closing {
            self.cancel.cancel();
        }
        if stage == Stage::Ended {
            self.ended.cancel();
        }
        self.wake_router();
    }

    /// Sets a deadline, or brings an earlier one.
    pub(crate) fn limit(&self, at: Instant) {
        let mut deadline = lock(&self.deadline);
        deadline.at = Some(deadline.at.map_or(at, |earlier| earlier.min(at)));
        drop(deadline);
        self.wake_router();
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        lock(&self.deadline).at
    }

    pub(crate) fn reach_deadline(&self) {
        lock(&self.deadline).reached = true;
        self.enter(Stage::Aborting);
    }

    pub(crate) fn deadline_reached(&self) -> bool {
        lock(&self.deadline).reached
    }

    /// A panic outside the handlers ends the dispatcher.
    pub(crate) fn abort_after_panic(&self) {
        self.panicked.store(true, Ordering::SeqCst);
        self.enter(Stage::Aborting);
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::SeqCst)
    }

    /// No message will come any more. Partner: `has_intake_ended`. A lane that halts after this
    /// store is handed back by the runner that halts it; one that halted before, by the router's
    /// sweep.
    pub(crate) fn end_intake(&self) {
        self.intake_ended.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_intake_ended(&self) -> bool {
        self.intake_ended.load(Ordering::SeqCst)
    }

    /// The dispatcher task is gone. Partner: `is_orphaned`. The later of the two, the task or the
    /// last runner, sees that everything has settled.
    pub(crate) fn orphan(&self) {
        self.orphaned.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::SeqCst)
    }

    pub(crate) fn router(&self) -> &AtomicWaker {
        &self.router
    }

    /// Wakes the router.
    pub(crate) fn wake_router(&self) {
        self.router.wake();
    }

    /// Keeps a message for the report; `accepted_at` is its place in the order of acceptance.
    pub(crate) fn hand_back(&self, accepted_at: u64, message: HandedBack<K, M>) {
        lock(&self.returned).messages.push((accepted_at, message));
    }

    /// Counts a message whose handler was dropped before it had returned.
    pub(crate) fn count_interrupted(&self) {
        lock(&self.returned).interrupted += 1;
    }

    pub(crate) fn take_returned(&self) -> (Vec<HandedBack<K, M>>, u64) {
        let (mut messages, interrupted) = {
            let mut returned = lock(&self.returned);
            (std::mem::take(&mut returned.messages), returned.interrupted)
        };
        // A job in flight comes back after the messages parked behind it.
        messages.sort_unstable_by_key(|(accepted_at, _)| *accepted_at);
        let messages = messages.into_iter().map(|(_, message)| message).collect();
        (messages, interrupted)
    }

    /// Waits until the report is final.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

impl<K, M> fmt::Debug for ShutdownState<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownState")
            .field("stage", &self.stage())
            .finish_non_exhaustive()
    }
}
