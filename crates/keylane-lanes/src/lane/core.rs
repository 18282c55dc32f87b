//! The lane: its head, what is parked behind it, and what few lanes have.

use keylane_rt::clock::Instant;

use super::super::item::Item;
use super::super::rules::{AtLimit, PlanRules, Rules};
use super::backlog::{Backlog, Spares};
use super::effects::Memory;
use super::more::More;
use super::plan::{Plan, Sequencer};
use super::state::{State, Timer, Transition, WaitReason};

/// The next step when the head of a plain lane is gone.
#[derive(Debug)]
#[must_use = "the next message of the lane must start, or the lane be removed"]
pub enum Next<T> {
    /// This message is the head now, and it is out.
    Start(T),
    /// Nothing starts, and the lane stays.
    Stay,
    /// The lane holds nothing: remove it in the same step.
    Remove,
}

/// The result of parking a message in a lane that exists.
#[derive(Debug)]
#[must_use = "a refused or displaced message must be settled"]
pub enum Offered<T> {
    /// It waits behind the head.
    Parked,
    /// It waits, and the oldest parked message had to leave.
    Displaced(T),
    /// There is no room for it.
    Refused(T),
}

/// The lane of one key. It exists only while it holds or runs something, or is paused.
///
/// `T` is a parked message, `H` a head that the lane holds itself, `G` a gate.
#[derive(Debug)]
pub struct Lane<T, H, G> {
    pub(super) state: State<H>,
    pub(super) parked: Backlog<T>,
    pub(super) more: More<T, G>,
}

impl<T, H, G> Lane<T, H, G> {
    /// Returns a lane whose first message is its head, which is out.
    #[inline]
    pub fn new() -> Self {
        Self {
            state: State::Ready,
            parked: Backlog::new(),
            more: More::new(),
        }
    }

    /// Returns a lane whose first message is in the ready queue, and [meets](Self::rejoin) the
    /// messages that come until a runner takes it.
    pub fn entered() -> Self {
        Self {
            state: State::Entered,
            ..Self::new()
        }
    }

    /// Returns an empty lane, for a message or a pause that is about to come. `tat` is the word of
    /// its rate.
    #[inline]
    pub fn empty(tat: u64) -> Self {
        let mut lane = Self {
            state: State::waiting(WaitReason::Empty),
            ..Self::new()
        };
        if tat > 0 {
            lane.more.rate_mut().tat = tat;
        }
        lane
    }

    /// Returns its state.
    #[inline]
    pub fn state(&self) -> &State<H> {
        &self.state
    }

    /// Returns the number of the head, if there is one, and the parked messages. Messages that a
    /// plan keeps beside them do not count: see [`depth`](Self::depth).
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.state.has_head()) + self.parked.len()
    }

    /// Returns the parked messages.
    #[inline]
    pub fn parked(&self) -> &Backlog<T> {
        &self.parked
    }

    /// Returns the parked messages, to be changed.
    #[inline]
    pub fn parked_mut(&mut self) -> &mut Backlog<T> {
        &mut self.parked
    }

    /// Returns the head, if the lane holds it.
    pub fn head_mut(&mut self) -> Option<&mut H> {
        self.state.head_mut()
    }

    /// Returns its sequencer, if it sequences.
    pub fn sequencer(&self) -> Option<&Sequencer<T>> {
        self.more.sequencer()
    }

    /// Returns whether this lane has nothing but a head and parked messages.
    #[inline]
    pub fn is_bare(&self) -> bool {
        self.more.is_absent()
    }

    /// Returns whether an operator has paused it.
    pub fn is_paused(&self) -> bool {
        self.more.is_paused()
    }

    /// Returns whether only a message or an operator can let this lane go on.
    pub fn is_endless(&self) -> bool {
        match self.state {
            // What it waits for is on its way.
            _ if self.more.is_merging() => false,
            State::Halted { .. } => true,
            State::Waiting { reason, until } => {
                let comes = reason == WaitReason::Lease || self.state.waits_for_store();
                until.is_none() && !comes
            }
            State::Backoff { .. } => self.is_paused(),
            State::Scheduled | State::Entered | State::Ready | State::Running { .. } => false,
        }
    }

    /// Parks a message behind the others.
    #[inline]
    pub fn park(
        &mut self,
        item: T,
        capacity: usize,
        at_limit: AtLimit,
        spares: &Spares<T>,
    ) -> Offered<T> {
        assert!(
            self.state.allows(Transition::Offer),
            "a lane that exists takes messages"
        );
        if at_limit == AtLimit::Park || self.len() < capacity {
            self.parked.push(item, spares);
            return Offered::Parked;
        }
        match at_limit {
            AtLimit::DropOldest => match self.parked.pop() {
                Some(oldest) => {
                    self.parked.push(item, spares);
                    Offered::Displaced(oldest)
                }
                // Only the head is here, and the head has been promised its start.
                None => Offered::Refused(item),
            },
            AtLimit::Refuse | AtLimit::Park => Offered::Refused(item),
        }
    }

    /// Begins the first message of this lane, which a runner has taken out of the ready queue.
    /// Returns whether it starts, because no other message has come since.
    #[inline]
    pub fn begin(&mut self) -> bool {
        let is_alone = self.parked.is_empty() && !self.is_paused();
        if is_alone {
            self.state
                .transition(Transition::Start, false, State::Ready);
        }
        is_alone
    }

    /// Moves on after the head has settled: the oldest parked message is the next one.
    #[inline]
    pub fn finish(&mut self) -> Next<T> {
        assert!(
            self.state.allows(Transition::Finish),
            "a head that settles was out"
        );
        self.state = State::Ready;
        match self.parked.pop() {
            Some(item) => Next::Start(item),
            None => Next::Remove,
        }
    }

    /// Returns whether a plain lane ends when its head settles, which is out: nothing is parked.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.is_bare() && self.parked.is_empty() && self.state.allows(Transition::Finish)
    }

    /// Notes that the handler of the head returned `Pending`.
    pub fn suspend(&mut self, since: Instant, attempt: u32, accepted_at: u64) {
        let running = State::Running {
            since,
            attempt,
            accepted_at,
        };
        self.transition(Transition::Suspend, running);
    }

    /// Takes the head back, to wait for its next attempt.
    pub fn back_off(&mut self, head: Box<H>, until: Instant) {
        let timer = Timer::Armed;
        self.transition(Transition::BackOff, State::Backoff { until, timer, head });
    }

    /// Lets the head go out again after its wait.
    pub fn due(&mut self) -> Box<H> {
        let head = self.state.due();
        head.expect("a lane in backoff holds its head")
    }

    /// Gives the memory of an emptied lane to the next one.
    #[inline]
    pub fn recycle(self, spares: &Spares<T>) {
        self.parked.recycle(spares);
        self.more.forget();
    }

    /// Goes into another state, if the table allows it.
    #[inline]
    pub(super) fn transition(&mut self, event: Transition, to: State<H>) {
        self.state.transition(event, !self.parked.is_empty(), to);
    }
}

impl<T: Item, H, G> Lane<T, H, G> {
    /// Returns the number of messages of this key, the head included.
    #[inline]
    pub fn depth(&self, rules: &Rules) -> usize {
        let mut depth = self.len() + self.more.plan().map_or(0, Plan::extra_len);
        if let PlanRules::Coalesce(_) = rules.plan {
            depth += self.parked.merged_len();
        }
        depth
    }

    /// Returns the oldest parked message, or else the first that came too early.
    pub fn oldest_waiting(&self) -> Option<&T> {
        let early = || self.sequencer().and_then(Sequencer::first_early);
        self.parked.oldest().or_else(early)
    }

    /// Returns the message of this version, if it came too early.
    pub fn early_mut(&mut self, version: u64) -> Option<&mut T> {
        self.more.sequencer_mut()?.early_mut(version)
    }

    /// Returns the memory of the key of a lane that goes.
    #[inline]
    pub fn memory(&self) -> Memory {
        Memory {
            version: self.sequencer().and_then(Sequencer::passed),
            tat: self.more.tat(),
        }
    }

    /// Marks the end of the messages in this lane. Returns `false` if there are none.
    pub fn set_watermark(&mut self, accepted_at: u64, rules: &Rules) -> bool {
        let holds = self.depth(rules) > 0 || self.state.is_out();
        if holds {
            self.more.set_watermark(Some(accepted_at));
        }
        holds
    }

    /// Returns whether the lane has a watermark.
    pub fn has_watermark(&self) -> bool {
        self.more.watermark().is_some()
    }

    /// Returns whether all messages that were accepted up to the watermark have left the lane,
    /// given the one that starts now. Returns `true` once: the mark is gone then.
    #[inline]
    pub fn passes_watermark(&mut self, starts: Option<&T>) -> bool {
        match self.more.watermark() {
            None => false,
            Some(mark) => self.passes(mark, starts),
        }
    }

    #[cold]
    fn passes(&mut self, mark: u64, starts: Option<&T>) -> bool {
        let is_behind = |item: &T| item.accepted_at() > mark;
        let passes = match starts {
            Some(item) => is_behind(item),
            None => {
                let early = self.sequencer().map_or(0, Sequencer::early_len);
                !self.state.has_head()
                    && !self.more.is_merging()
                    && early == 0
                    && self.parked.oldest().is_none_or(is_behind)
            }
        };
        if passes {
            self.more.set_watermark(None);
        }
        passes
    }
}
