//! The states of a lane, and the whole transition table.

use keylane_rt::clock::Instant;

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
