//! The lane: its head, what is parked behind it, and what few lanes have.

use keylane_rt::clock::Instant;

use super::super::gate::Full;
use super::super::item::Item;
use super::super::rules::{AtLimit, PlanRules, Rules};
use super::backlog::{Backlog, Spares};
use super::plan::Plan;
use super::state::{Phase, State, Timer, Transition, WaitReason};

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
    /// Boxed and absent in most lanes, which hold one message at a time: such a lane is made, moved
    /// and dropped at the price of a few words.
    pub(super) parked: Option<Box<Backlog<T>>>,
    pub(super) more: Option<Box<More<T, G>>>,
}

/// What most lanes do without.
#[derive(Debug)]
pub(super) struct More<T, G> {
    /// Nothing of this key starts until an operator resumes it.
    pub(super) paused: bool,
    pub(super) full: Option<Full<G>>,
    /// What was accepted up to then must leave this lane before its keys may move to another one.
    pub(super) watermark: Option<u64>,
    /// The theoretical arrival time of the rate (GCRA), in nanoseconds; 0 before the first message.
    pub(super) tat: u64,
    /// What it was before the last message: one that comes back has not used it.
    pub(super) tat_before: u64,
    pub(super) plan: Plan<T>,
}

impl<T, G> Default for More<T, G> {
    fn default() -> Self {
        Self {
            paused: false,
            full: None,
            watermark: None,
            tat: 0,
            tat_before: 0,
            plan: Plan::Stateless,
        }
    }
}

impl<T, H, G> Lane<T, H, G> {
    /// Returns a lane whose first message is its head, which is out.
    #[inline]
    pub fn new() -> Self {
        Self {
            state: State::Ready,
            parked: None,
            more: None,
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
    pub fn empty(tat: u64) -> Self {
        let mut lane = Self {
            state: State::Waiting {
                reason: WaitReason::Empty,
                until: None,
            },
            parked: None,
            more: None,
        };
        if tat > 0 {
            lane.more_mut().tat = tat;
        }
        lane
    }

    /// Returns its state, without the contents of the state.
    #[inline]
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Scheduled => Phase::Scheduled,
            State::Waiting { .. } => Phase::Waiting,
            State::Entered => Phase::Entered,
            State::Ready => Phase::Ready,
            State::Running { .. } => Phase::Running,
            State::Backoff { .. } => Phase::Backoff,
            State::Halted { .. } => Phase::Halted,
        }
    }

    /// Returns its state.
    pub fn state(&self) -> &State<H> {
        &self.state
    }

    /// Returns the number of the head, if there is one, and the parked messages. Messages that a
    /// plan keeps beside them do not count: see [`depth`](Self::depth).
    #[inline]
    pub fn len(&self) -> usize {
        let waits = matches!(self.state, State::Scheduled | State::Waiting { .. });
        usize::from(!waits) + self.parked_len()
    }

    /// Returns the number of parked messages.
    #[inline]
    pub fn parked_len(&self) -> usize {
        self.parked.as_ref().map_or(0, |parked| parked.len())
    }

    /// Returns the parked messages, the oldest first.
    pub fn parked(&self) -> impl Iterator<Item = &T> {
        self.parked.iter().flat_map(|parked| parked.iter())
    }

    /// Returns the parked messages, the oldest first, to be changed.
    pub fn parked_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.parked.iter_mut().flat_map(|parked| parked.iter_mut())
    }

    /// Returns the oldest parked message.
    pub fn oldest_parked(&self) -> Option<&T> {
        self.parked.as_ref()?.front()
    }

    /// Returns whether this lane has nothing but a head and parked messages.
    #[inline]
    pub fn is_bare(&self) -> bool {
        self.more.is_none()
    }

    /// Returns whether an operator has paused it.
    pub fn is_paused(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.paused)
    }

    /// Whether two messages of this lane are with the router, which makes one of them. Until that
    /// comes back the lane stays, and has not drained.
    pub(super) fn is_merging(&self) -> bool {
        let plan = self.more.as_ref().map(|more| &more.plan);
        matches!(plan, Some(Plan::Merging(_)))
    }

    /// Returns the reason why a waiting lane waits.
    pub fn wait_reason(&self) -> Option<WaitReason> {
        match self.state {
            State::Waiting { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Returns whether no message of this key starts before time passes, a missing version comes, a
    /// lease is granted, the version store answers or an operator acts.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        match self.state {
            State::Backoff { .. } | State::Halted { .. } => true,
            State::Waiting { reason, .. } => {
                !matches!(reason, WaitReason::Linger | WaitReason::Empty)
            }
            State::Scheduled | State::Entered | State::Ready | State::Running { .. } => false,
        }
    }

    /// Returns whether only a message or an operator can let this lane go on.
    pub fn is_endless(&self) -> bool {
        match self.state {
            // What it waits for is on its way.
            _ if self.is_merging() => false,
            State::Halted { .. } => true,
            State::Waiting { reason, until } => {
                let comes = matches!(
                    reason,
                    WaitReason::Lease | WaitReason::Load | WaitReason::Record
                );
                until.is_none() && !comes
            }
            State::Backoff { .. } => self.is_paused(),
            State::Scheduled | State::Entered | State::Ready | State::Running { .. } => false,
        }
    }

    /// Returns whether it waits for the lease of its key.
    pub fn is_unleased(&self) -> bool {
        match self.state {
            State::Waiting { reason, .. } => reason == WaitReason::Lease,
            State::Backoff { timer, .. } => timer == Timer::Unleased,
            _ => false,
        }
    }

    /// Returns whether it waits for a decision about its head, or about a gap.
    pub fn is_halted(&self) -> bool {
        matches!(self.state, State::Halted { .. })
            || self.wait_reason() == Some(WaitReason::HaltedGap)
    }

    /// Returns whether its head, or the lane itself, is in the ready queue or with a runner.
    pub fn is_out(&self) -> bool {
        matches!(
            self.state,
            State::Scheduled | State::Entered | State::Ready | State::Running { .. }
        )
    }

    /// Returns when the head is due, if it waits for time.
    pub fn backs_off_until(&self) -> Option<Instant> {
        match self.state {
            State::Backoff { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Returns whether a timer is armed for the head that the lane holds.
    pub fn is_timed(&self) -> bool {
        let State::Backoff { timer, .. } = self.state else {
            return false;
        };
        timer == Timer::Armed
    }

    /// Returns the head, if the lane holds it.
    pub fn head(&self) -> Option<&H> {
        match &self.state {
            State::Backoff { head, .. } | State::Halted { head } => Some(head),
            _ => None,
        }
    }

    /// Returns the head, if the lane holds it.
    pub fn head_mut(&mut self) -> Option<&mut H> {
        match &mut self.state {
            State::Backoff { head, .. } | State::Halted { head } => Some(head),
            _ => None,
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
            self.allows(Transition::Offer),
            "a lane that exists takes messages"
        );
        if at_limit == AtLimit::Park || self.len() < capacity {
            self.push(item, spares);
            return Offered::Parked;
        }
        match at_limit {
            AtLimit::DropOldest => match self.pop() {
                Some(oldest) => {
                    self.push(item, spares);
                    Offered::Displaced(oldest)
                }
                // Only the head is here, and the head has been promised its start.
                None => Offered::Refused(item),
            },
            AtLimit::Refuse | AtLimit::Park => Offered::Refused(item),
        }
    }

    /// Parks a message in front of all others. It was out and has not started, or has failed.
    pub fn put_back(&mut self, item: T, spares: &Spares<T>) {
        self.parked
            .get_or_insert_with(|| spares.take())
            .push_front(item);
    }

    /// Gives up the parked messages for which `keep` returns `false`.
    pub fn retain_parked(&mut self, keep: impl FnMut(&T) -> bool) {
        if let Some(parked) = &mut self.parked {
            parked.retain(keep);
        }
    }

    /// Moves on after the head has settled: the oldest parked message is the next one.
    #[inline]
    pub fn finish(&mut self) -> Next<T> {
        assert!(
            self.allows(Transition::Finish),
            "a head that settles was out"
        );
        self.state = State::Ready;
        match self.pop() {
            Some(item) => Next::Start(item),
            None => Next::Remove,
        }
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
        self.check(Transition::Due);
        self.take_head().expect("a lane in backoff holds its head")
    }

    /// Gives the memory of an emptied lane to the next one.
    #[inline]
    pub fn recycle(self, spares: &Spares<T>) {
        if let Some(parked) = self.parked {
            spares.give(parked);
        }
        if let Some(more) = self.more {
            forget(more);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, item: T, spares: &Spares<T>) {
        self.parked
            .get_or_insert_with(|| spares.take())
            .push_back(item);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        self.parked.as_mut()?.pop_front()
    }

    pub(super) fn pop_newest(&mut self) -> Option<T> {
        self.parked.as_mut()?.pop_back()
    }

    /// What this lane has beyond the ordinary, made if it has nothing yet.
    pub(super) fn more_mut(&mut self) -> &mut More<T, G> {
        self.more.get_or_insert_default()
    }

    /// Takes a head that the lane holds: it is out from here on.
    pub(super) fn take_head(&mut self) -> Option<Box<H>> {
        match std::mem::replace(&mut self.state, State::Ready) {
            State::Backoff { head, .. } | State::Halted { head } => Some(head),
            out => {
                self.state = out;
                None
            }
        }
    }

    /// Goes into another state, if the table allows it.
    #[inline]
    pub(super) fn transition(&mut self, event: Transition, state: State<H>) {
        let after = self.check(event);
        self.state = state;
        assert_eq!(self.phase(), after, "{event:?} does not lead there");
    }

    /// Whether an event can happen now, for those that happen to every message.
    #[inline]
    fn allows(&self, event: Transition) -> bool {
        let (with, without) = (true, false);
        let phase = self.phase();
        phase.after(event, with).is_some() && phase.after(event, without).is_some()
    }

    /// The phase after an event, which must be one that can happen.
    #[inline]
    pub(super) fn check(&self, event: Transition) -> Phase {
        let phase = self.phase();
        let after = phase.after(event, self.parked_len() > 0);
        after.unwrap_or_else(|| panic!("{event:?} cannot happen to a lane that is {phase:?}"))
    }
}

impl<T: Item, H, G> Lane<T, H, G> {
    /// Returns the number of messages of this key, the head included.
    #[inline]
    pub fn depth(&self, rules: &Rules) -> usize {
        let mut depth = self.len();
        if let Some(more) = &self.more {
            depth += more.plan.extra_len();
        }
        if let PlanRules::Coalesce(_) = rules.plan {
            depth += self.parked().map(Item::merged_len).sum::<usize>();
        }
        depth
    }

    /// Returns the oldest parked message, or else the first that came too early.
    pub fn oldest_waiting(&self) -> Option<&T> {
        self.oldest_parked().or_else(|| self.first_early())
    }

    /// Returns the message of this version, if it came too early.
    pub fn early_mut(&mut self, version: u64) -> Option<&mut T> {
        self.sequencer_mut()?.early_mut(version)
    }

    /// Returns the first of the messages that came before their turn.
    pub fn first_early(&self) -> Option<&T> {
        self.more.as_ref()?.plan.sequencer()?.first_early()
    }

    /// Marks the end of the messages in this lane. Returns `false` if there are none.
    pub fn set_watermark(&mut self, accepted_at: u64, rules: &Rules) -> bool {
        let holds = self.depth(rules) > 0 || self.is_out();
        if holds {
            self.more_mut().watermark = Some(accepted_at);
        }
        holds
    }

    /// Returns whether the lane has a watermark.
    pub fn has_watermark(&self) -> bool {
        self.more
            .as_ref()
            .is_some_and(|more| more.watermark.is_some())
    }

    /// Returns whether all messages that were accepted up to the watermark have left the lane,
    /// given the one that starts now. Returns `true` once: the mark is gone then.
    #[inline]
    pub fn passes_watermark(&mut self, starts: Option<&T>) -> bool {
        match &self.more {
            None => false,
            Some(more) => match more.watermark {
                None => false,
                Some(mark) => self.passes(mark, starts),
            },
        }
    }

    #[cold]
    fn passes(&mut self, mark: u64, starts: Option<&T>) -> bool {
        let is_behind = |item: &T| item.accepted_at() > mark;
        let passes = match starts {
            Some(item) => is_behind(item),
            None => {
                matches!(self.state, State::Scheduled | State::Waiting { .. })
                    && !self.is_merging()
                    && self.first_early().is_none()
                    && self.oldest_parked().is_none_or(is_behind)
            }
        };
        if passes {
            self.more_mut().watermark = None;
        }
        passes
    }
}

/// Cold, so that plain lanes do not carry the code that drops what they do not have.
#[cold]
fn forget<T, G>(more: Box<More<T, G>>) {
    drop(more);
}
