//! The states of a lane, and the whole transition table.

use keylane_rt::clock::Instant;

use super::super::item::Item;
use super::super::rules::TICK;
use super::effects::{Due, Effects, Out};

/// The place of the head of a lane. Everything behind the head is parked.
///
/// In `Entered`, `Ready` and `Running` the head is out: it travels as a job from the ready queue to
/// a runner. There is one job per lane, so two handlers of one key cannot run at once. In `Backoff`
/// and `Halted` the lane itself holds the head. In `Scheduled` and `Waiting` there is no head yet:
/// the first of the parked messages will be it.
#[derive(Debug)]
pub enum State<H> {
    /// The lane stands in the ready queue, and is asked for its next message when a runner takes
    /// it.
    Scheduled,
    /// The lane is in no queue. Its parked messages, if any, wait for this reason.
    Waiting {
        /// What it waits for.
        reason: WaitReason,
        /// Until when, if that is known.
        until: Option<Instant>,
    },
    /// The first message is in the ready queue. The lane decides what to start when a runner takes
    /// it.
    Entered,
    /// The head is in the ready queue, or its handler is in its first poll.
    Ready,
    /// The handler returned `Pending` at least once.
    Running {
        /// The time since which it waits.
        since: Instant,
        /// The number of the attempt, counted from 1.
        attempt: u32,
        /// The acceptance of the message.
        accepted_at: u64,
    },
    /// The head waits for its next attempt, or for a dead-letter sink to recover.
    Backoff {
        /// The end of the wait.
        until: Instant,
        /// Its timer.
        timer: Timer,
        /// The message that waits.
        head: Box<H>,
    },
    /// The head was given up on, and nothing starts until an operator decides.
    Halted {
        /// The message that was given up on.
        head: Box<H>,
    },
}

/// The timer of a head in backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    Armed,
    /// It went off while the lane was paused.
    Fired,
    /// There is none: it went off before, and the head came back from the ready queue.
    Spent,
    /// There is none: the head waits for the lease of its key.
    Unleased,
}

/// The reason why a waiting lane waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// For `resume`.
    Paused,
    /// For the rate of the key.
    Rate,
    /// For the time of its first message.
    Delay,
    /// For more messages to come into a batch.
    Linger,
    /// For the lease of the key.
    Lease,
    /// For the answer of the version store about the key.
    Load,
    /// For the version store to record the versions that were given up.
    Record,
    /// For a version that has not come.
    Gap,
    /// The version did not come in time, and the policy is to stop.
    HaltedGap,
    /// For messages: the lane is empty.
    Empty,
}

impl<H> State<H> {
    /// A lane that waits until it is told that this is over.
    pub(super) const fn waiting(reason: WaitReason) -> Self {
        Self::Waiting {
            reason,
            until: None,
        }
    }

    /// Returns the state without its contents.
    #[inline]
    pub fn phase(&self) -> Phase {
        match self {
            Self::Scheduled => Phase::Scheduled,
            Self::Waiting { .. } => Phase::Waiting,
            Self::Entered => Phase::Entered,
            Self::Ready => Phase::Ready,
            Self::Running { .. } => Phase::Running,
            Self::Backoff { .. } => Phase::Backoff,
            Self::Halted { .. } => Phase::Halted,
        }
    }

    /// Returns the reason why a waiting lane waits.
    #[inline]
    pub fn wait_reason(&self) -> Option<WaitReason> {
        match self {
            Self::Waiting { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// Returns whether there is a head: in the lane, or out of it.
    #[inline]
    pub(super) fn has_head(&self) -> bool {
        !matches!(self, Self::Scheduled | Self::Waiting { .. })
    }

    /// Whether the head is in the ready queue or with a runner.
    #[inline]
    pub(super) fn is_head_out(&self) -> bool {
        matches!(self, Self::Entered | Self::Ready | Self::Running { .. })
    }

    /// Returns whether the head, or the lane itself, is in the ready queue or with a runner.
    #[inline]
    pub fn is_out(&self) -> bool {
        self.is_head_out() || matches!(self, Self::Scheduled)
    }

    /// Returns whether no message of this key starts before time passes, a missing version comes, a
    /// lease is granted, the version store answers or an operator acts.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        match self {
            Self::Backoff { .. } | Self::Halted { .. } => true,
            Self::Waiting { reason, .. } => {
                !matches!(reason, WaitReason::Linger | WaitReason::Empty)
            }
            Self::Scheduled | Self::Entered | Self::Ready | Self::Running { .. } => false,
        }
    }

    /// Returns whether the lane waits for the lease of its key.
    #[inline]
    pub fn is_unleased(&self) -> bool {
        match self {
            Self::Waiting { reason, .. } => *reason == WaitReason::Lease,
            Self::Backoff { timer, .. } => *timer == Timer::Unleased,
            _ => false,
        }
    }

    /// Returns whether the lane waits for a decision about its head, or about a gap.
    #[inline]
    pub(super) fn is_halted(&self) -> bool {
        matches!(self, Self::Halted { .. }) || self.wait_reason() == Some(WaitReason::HaltedGap)
    }

    /// Whether the lane waits for a version that has not come, and no message of it runs.
    #[inline]
    pub(super) fn waits_for_version(&self) -> bool {
        let reason = self.wait_reason();
        matches!(reason, Some(WaitReason::Gap | WaitReason::HaltedGap))
    }

    /// Whether the lane waits until this very time.
    pub(super) fn waits_until(&self, time: Instant) -> bool {
        matches!(self, Self::Waiting { until: Some(until), .. } if *until == time)
    }

    /// Whether the lane waits for the version store.
    #[inline]
    pub(super) fn waits_for_store(&self) -> bool {
        let reason = self.wait_reason();
        matches!(reason, Some(WaitReason::Load | WaitReason::Record))
    }

    /// Returns when the head is due, if it waits for time.
    pub fn backs_off_until(&self) -> Option<Instant> {
        match self {
            Self::Backoff { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Whether a timer is armed for the head that the lane holds.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        let Self::Backoff { timer, .. } = self else {
            return false;
        };
        *timer == Timer::Armed
    }

    /// Returns the head, if the lane holds it.
    #[inline]
    pub fn head(&self) -> Option<&H> {
        match self {
            Self::Backoff { head, .. } | Self::Halted { head } => Some(head),
            _ => None,
        }
    }

    pub(super) fn head_mut(&mut self) -> Option<&mut H> {
        match self {
            Self::Backoff { head, .. } | Self::Halted { head } => Some(head),
            _ => None,
        }
    }

    /// Another message is the first of the lane now: the wait was for the time of the one before.
    #[inline]
    pub(super) fn forget_delay(&mut self) {
        if self.wait_reason() == Some(WaitReason::Delay) {
            let parked = true;
            self.transition(Transition::Wait, parked, Self::waiting(WaitReason::Empty));
        }
    }

    /// Takes a head that the lane holds: it is out from here on.
    #[inline]
    pub(super) fn take_head(&mut self) -> Option<Box<H>> {
        match std::mem::replace(self, Self::Ready) {
            Self::Backoff { head, .. } | Self::Halted { head } => Some(head),
            out => {
                *self = out;
                None
            }
        }
    }

    /// Whether an event can happen now, for those that happen to every message.
    #[inline]
    pub(super) fn allows(&self, event: Transition) -> bool {
        let (with, without) = (true, false);
        let phase = self.phase();
        phase.after(event, with).is_some() && phase.after(event, without).is_some()
    }

    /// The phase after an event, which must be one that can happen.
    #[inline]
    pub(super) fn check(&self, event: Transition, parked: bool) -> Phase {
        let phase = self.phase();
        let after = phase.after(event, parked);
        after.unwrap_or_else(|| panic!("{event:?} cannot happen to a lane that is {phase:?}"))
    }

    /// Goes into another state, if the table allows it.
    // Always: most callers name the event and the state, and then hardly anything is left of it.
    #[inline(always)]
    pub(super) fn transition(&mut self, event: Transition, parked: bool, to: Self) {
        let after = self.check(event, parked);
        *self = to;
        assert_eq!(self.phase(), after, "{event:?} does not lead there");
    }
}

// A head that the lane holds leaves it. Whether something is parked makes no difference then.
impl<H> State<H> {
    /// Lets the head go out again after its wait.
    pub(super) fn due(&mut self) -> Option<Box<H>> {
        let parked = true;
        self.check(Transition::Due, parked);
        self.take_head()
    }

    /// Lets the head go out, before its time or after a halt.
    pub(super) fn let_out<T: Item, G>(&mut self, restarts: bool, effects: &mut Effects<T, H, G>) {
        let (event, counts) = match self {
            Self::Halted { .. } => (Transition::Resume, true),
            Self::Backoff { timer, .. } => {
                let was_counted = matches!(timer, Timer::Spent | Timer::Unleased);
                (Transition::Due, !was_counted)
            }
            _ => (Transition::Due, true),
        };
        let parked = true;
        self.check(event, parked);
        self.uncount(effects);
        if let Some(head) = self.take_head() {
            effects.out = Out::Head {
                head,
                restarts,
                counts,
            };
        }
    }

    /// The lane leaves this state: what was counted of it.
    #[inline]
    pub(super) fn uncount<T: Item, G>(&self, effects: &mut Effects<T, H, G>) {
        if self.is_halted() {
            effects.halted.down();
        }
        effects.stale = self.is_timed();
    }

    /// The timer of the head went off.
    #[inline]
    pub(super) fn backoff_due<T: Item, G>(
        &mut self,
        armed: Instant,
        now: Instant,
        is_paused: bool,
        effects: &mut Effects<T, H, G>,
    ) {
        let Self::Backoff { until, timer, .. } = self else {
            effects.stale = true;
            return;
        };
        if *until != armed {
            effects.stale = true;
        } else if armed > now + TICK {
            // The wheel has a longest wait; this head waits longer.
            effects.wake = Some(Due::Backoff(armed));
        } else if is_paused {
            // `resume` lets it go.
            *timer = Timer::Fired;
        } else if let Some(head) = self.due() {
            effects.out = Out::Head {
                head,
                restarts: false,
                // The router has counted it, against the budget.
                counts: false,
            };
        }
    }
}

/// The name of a state, for the transition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Absent,
    Scheduled,
    Waiting,
    Entered,
    Ready,
    Running,
    Backoff,
    Halted,
}

/// The events of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// A message of this key was accepted.
    Offer,
    /// A waiting lane is put into the ready queue, to be asked for its next message.
    Schedule,
    /// The first parked message becomes the head and goes out; or one that finds the lane empty.
    Start,
    /// Nothing of this key may start now. What was out comes back.
    Wait,
    /// There is nothing to run and nothing to wait for.
    Leave,
    /// The handler of the head, or the sink of its dead letter, returned `Pending` for the first
    /// time.
    Suspend,
    /// The head settled, and the next message of the lane is its head at once.
    Finish,
    /// The head settled, and the lane is to be asked for its next message.
    Requeue,
    /// The head is to be tried again later.
    BackOff,
    /// The head in backoff goes out again.
    Due,
    /// The head was given up on and the lane must stop.
    Halt,
    /// A halted head goes out again.
    Resume,
    /// Everything the lane holds is handed back.
    HandBack,
}

impl Phase {
    #[cfg(test)]
    #[cfg(not(keylane_shuttle))]
    pub const ALL: [Self; 8] = [
        Self::Absent,
        Self::Scheduled,
        Self::Waiting,
        Self::Entered,
        Self::Ready,
        Self::Running,
        Self::Backoff,
        Self::Halted,
    ];

    /// Returns the phase after a transition. `parked` tells whether any message is parked.
    ///
    /// `None` is a transition that cannot happen in this phase.
    #[inline]
    pub const fn after(self, transition: Transition, parked: bool) -> Option<Self> {
        let next = if parked { Self::Ready } else { Self::Absent };
        match (self, transition) {
            // Or `Entered`, where the first message meets what comes until a runner takes it.
            (Self::Absent, Transition::Offer) => Some(Self::Ready),
            (Self::Absent, _) => None,
            (held, Transition::Offer) => Some(held),

            (Self::Waiting, Transition::Schedule) => Some(Self::Scheduled),
            (Self::Scheduled, Transition::Start) if parked => Some(Self::Ready),
            // A message came that may start at once. It need not have been parked for that.
            (Self::Waiting, Transition::Start) => Some(Self::Ready),
            (Self::Entered, Transition::Start) if !parked => Some(Self::Ready),
            (Self::Scheduled | Self::Entered | Self::Ready | Self::Waiting, Transition::Wait) => {
                Some(Self::Waiting)
            }
            (Self::Scheduled | Self::Waiting, Transition::Leave) if !parked => Some(Self::Absent),
            (Self::Waiting, Transition::HandBack) => Some(Self::Absent),
            // The runner that takes the lane out of the ready queue will find nothing in it.
            (Self::Scheduled, Transition::HandBack) => Some(self),

            // From `Running`: the handler waited and failed, and now the dead-letter sink waits.
            (Self::Entered | Self::Ready | Self::Running, Transition::Suspend) => {
                Some(Self::Running)
            }
            (Self::Entered | Self::Ready | Self::Running, Transition::Finish) => Some(next),
            (Self::Entered | Self::Ready | Self::Running, Transition::Requeue) => {
                Some(Self::Scheduled)
            }
            (Self::Entered | Self::Ready | Self::Running, Transition::BackOff) => {
                Some(Self::Backoff)
            }
            (Self::Entered | Self::Ready | Self::Running, Transition::Halt) => Some(Self::Halted),
            // The head is out and will find nothing behind it when it comes back.
            (Self::Entered | Self::Ready | Self::Running, Transition::HandBack) => Some(self),

            (Self::Backoff, Transition::Due) => Some(Self::Ready),
            (Self::Halted, Transition::Resume) => Some(Self::Ready),
            (Self::Backoff | Self::Halted, Transition::HandBack) => Some(Self::Absent),

            _ => None,
        }
    }
}

impl Transition {
    #[cfg(test)]
    #[cfg(not(keylane_shuttle))]
    pub const ALL: [Self; 13] = [
        Self::Offer,
        Self::Schedule,
        Self::Start,
        Self::Wait,
        Self::Leave,
        Self::Suspend,
        Self::Finish,
        Self::Requeue,
        Self::BackOff,
        Self::Due,
        Self::Halt,
        Self::Resume,
        Self::HandBack,
    ];
}
