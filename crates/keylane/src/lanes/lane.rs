//! One lane: a pure state machine. No async, no Tokio, no clock, no lock.

use super::backlog::{Backlog, Spares};
use super::sequencer::Sequencer;
use crate::clock::Instant;

/// Where the head of a lane is. Everything behind the head is parked.
///
/// In `Ready` and `Running` the head is out: it travels as a *turn*, the one right to run this
/// key, from the ready queue to a runner. There is one turn per lane, so two futures of one key
/// cannot exist. In `Backoff` and `Halted` the lane itself holds the head.
///
/// A lane that thinks lets its turn out without a message, as a *call*: whoever takes the call asks
/// the lane what to run, so that the answer is the one of that moment. Until then, and while it
/// rests, the head is the first of the parked messages.
#[derive(Debug)]
pub(crate) enum State<H> {
    /// A call is in the ready queue.
    Called,
    /// Nothing is out: what is parked, if anything is, waits for time, for a message or for somebody.
    Resting { why: Rest, until: Option<Instant> },
    /// The turn is in the ready queue, or its handler is in its first poll.
    Ready,
    /// The handler returned `Pending` at least once.
    Running {
        since: Instant,
        attempt: u32,
        /// When it was parked, as its ticket says.
        parked_at: u64,
    },
    /// The head waits for its next attempt, or for a dead-letter sink to recover.
    Backoff { until: Instant, head: Box<H> },
    /// The head was given up on and the policy is to stop: nothing starts until somebody decides.
    Halted { head: Box<H> },
}

/// What a resting lane waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rest {
    /// For `resume`.
    Paused,
    /// For the rate of the key.
    Rate,
    /// For the time of its head.
    Delay,
    /// For more messages to come into a batch.
    Linger,
    /// For the store, which is asked where the key stands.
    Loading,
    /// For the store, which records that versions were given up.
    Recording,
    /// For a version that has not come.
    Gap,
    /// The version has not come in time, and the policy is to stop.
    HaltedGap,
    /// For messages: nothing is parked, and there is something to remember.
    Idle,
}

/// The name of a state, for legality and for the transition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Absent,
    Called,
    Resting,
    Ready,
    Running,
    Backoff,
    Halted,
}

/// What can happen to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A message of this key was accepted.
    Offer,
    /// A lane that rests is to be asked what to run.
    Call,
    /// The one who took the call takes the first parked message.
    Pick,
    /// Nothing of this key may start now: whoever has its turn, or its call, gives it back.
    Rest,
    /// There is nothing to run and nothing to remember.
    Leave,
    /// The handler of the head, or the sink of its dead letter, returned `Pending` for the first
    /// time.
    Wait,
    /// The head settled.
    Finish,
    /// The head is to be tried again later.
    BackOff,
    /// The time of the next attempt has come.
    Due,
    /// The head was given up on and the lane must stop.
    Halt,
    /// A halted head is to be tried again.
    Resume,
    /// The head settled, in a lane that is asked what to run next.
    Ask,
    /// Everything the lane holds is handed back.
    HandBack,
}

impl Phase {
    #[cfg(all(test, not(keylane_shuttle)))]
    pub(crate) const ALL: [Self; 7] = [
        Self::Absent,
        Self::Called,
        Self::Resting,
        Self::Ready,
        Self::Running,
        Self::Backoff,
        Self::Halted,
    ];

    /// The whole transition table. `parked` tells whether anything waits behind the head.
    ///
    /// `None` is an event that cannot happen in this phase.
    pub(crate) fn after(self, event: Event, parked: bool) -> Option<Self> {
        let next = if parked { Self::Ready } else { Self::Absent };
        match (self, event) {
            (Self::Absent, Event::Offer) => Some(Self::Ready),
            (Self::Absent, _) => None,
            (held, Event::Offer) => Some(held),

            (Self::Resting, Event::Call) => Some(Self::Called),
            (Self::Called, Event::Pick) if parked => Some(Self::Ready),
            (Self::Called | Self::Ready, Event::Rest) => Some(Self::Resting),
            (Self::Called | Self::Resting, Event::Leave) if !parked => Some(Self::Absent),
            (Self::Resting, Event::HandBack) => Some(Self::Absent),
            (Self::Called, Event::HandBack) => Some(self),

            // From `Running`: the handler waited and failed, and now the dead-letter sink waits.
            (Self::Ready | Self::Running, Event::Wait) => Some(Self::Running),
            (Self::Ready | Self::Running, Event::Finish) => Some(next),
            (Self::Ready | Self::Running, Event::Ask) => Some(Self::Called),
            (Self::Ready | Self::Running, Event::BackOff) => Some(Self::Backoff),
            (Self::Ready | Self::Running, Event::Halt) => Some(Self::Halted),
            // The head is out and will find nothing behind it when it comes back.
            (Self::Ready | Self::Running, Event::HandBack) => Some(self),

            (Self::Backoff, Event::Due) => Some(Self::Ready),
            (Self::Halted, Event::Resume) => Some(Self::Ready),
            (Self::Backoff | Self::Halted, Event::HandBack) => Some(Self::Absent),

            _ => None,
        }
    }
}

impl Event {
    #[cfg(all(test, not(keylane_shuttle)))]
    pub(crate) const ALL: [Self; 13] = [
        Self::Offer,
        Self::Call,
        Self::Pick,
        Self::Rest,
        Self::Leave,
        Self::Wait,
        Self::Finish,
        Self::BackOff,
        Self::Due,
        Self::Halt,
        Self::Resume,
        Self::Ask,
        Self::HandBack,
    ];
}

/// What to do now that the head is gone.
#[derive(Debug)]
#[must_use = "the next message of the lane must start, or the lane be removed"]
pub(crate) enum Next<T> {
    /// This message is the head now, and its turn is out.
    Start(T),
    /// Nothing starts, and the lane stays.
    Stay,
    /// The lane holds nothing: remove it in the same step.
    Remove,
}

/// What became of a message offered to a lane that exists.
#[derive(Debug)]
#[must_use = "a refused or displaced message must be settled"]
pub(crate) enum Offered<T> {
    /// It waits behind the head.
    Parked,
    /// It waits, and the oldest parked message had to go.
    Displaced(T),
    /// There is no room for it.
    Refused(T),
}

/// What an offer does at the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtLimit {
    /// Park all the same: the senders see that the lane is full and hold back.
    Park,
    /// Make room by giving up the oldest parked message.
    DropOldest,
    /// Give up the new one.
    Refuse,
}

/// The mark of a full lane: who waits for room, and how much room was promised to them.
///
/// `G` is the gate where senders wait; the lane only keeps it.
#[derive(Debug)]
pub(crate) struct Full<G> {
    pub(crate) gate: G,
    /// Room granted to waiting senders whose messages have not arrived yet.
    pub(crate) granted: usize,
    /// Where the engine has counted this lane as full.
    pub(crate) slot: usize,
}

/// The timer of a head in backoff, in a lane that may be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    Set,
    /// It has gone off while the lane was paused.
    GoneOff,
    /// It has gone off before, and the head came back from the ready queue.
    Used,
}

/// What most lanes do without.
#[derive(Debug)]
pub(crate) struct Extra<T, G> {
    full: Option<Full<G>>,
    /// Nothing of this key starts until somebody resumes it.
    pub(crate) paused: bool,
    /// Whether there is a timer for the head in backoff.
    pub(crate) timer: Timer,
    /// The word of the rate limit: when the next message is due in theory; 0 before the first.
    pub(crate) tat: u64,
    /// Messages that were merged into the one that waits.
    pub(crate) merged: usize,
    /// Messages that are in the handler with the head, as one batch.
    pub(crate) mates: usize,
    /// The moment at which a timer looks for expired messages.
    pub(crate) expiry: Option<Instant>,
    /// Whether what is here may start before the batch is full.
    pub(crate) lingered: bool,
    /// The mark behind what has to leave this lane before its keys may move: a `parked_at`.
    pub(crate) bar: Option<u64>,
    /// The order of the versions, in a lane that sequences.
    pub(crate) sequencer: Option<Sequencer<T>>,
}

impl<T, G> Default for Extra<T, G> {
    fn default() -> Self {
        Self {
            full: None,
            paused: false,
            timer: Timer::Set,
            tat: 0,
            merged: 0,
            mates: 0,
            expiry: None,
            lingered: false,
            bar: None,
            sequencer: None,
        }
    }
}

/// The lane of one key. It exists only while it holds or runs something, or has to remember
/// something.
///
/// `T` is a parked message, `H` a head that the lane holds itself, `G` a gate.
#[derive(Debug)]
pub(crate) struct Lane<T, H, G> {
    state: State<H>,
    /// Boxed and absent in most lanes, which hold one message at a time: such a lane is made,
    /// moved and dropped at the price of a few words.
    parked: Option<Box<Backlog<T>>>,
    extra: Option<Box<Extra<T, G>>>,
}

impl<T, H, G> Lane<T, H, G> {
    /// A lane whose first message is its head: the caller holds the turn.
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            state: State::Ready,
            parked: None,
            extra: None,
        }
    }

    /// A lane with nothing in it, which is made to be told something.
    pub(crate) fn resting() -> Self {
        Self {
            state: State::Resting {
                why: Rest::Idle,
                until: None,
            },
            parked: None,
            extra: None,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.state {
            State::Called => Phase::Called,
            State::Resting { .. } => Phase::Resting,
            State::Ready => Phase::Ready,
            State::Running { .. } => Phase::Running,
            State::Backoff { .. } => Phase::Backoff,
            State::Halted { .. } => Phase::Halted,
        }
    }

    pub(crate) fn state(&self) -> &State<H> {
        &self.state
    }

    /// Messages of this key, the head included.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        let head = usize::from(!matches!(self.state, State::Called | State::Resting { .. }));
        let parked = self.parked.as_ref().map_or(0, |parked| parked.len());
        head + parked + self.extra.as_ref().map_or(0, |extra| extra.beside())
    }

    /// What this lane has beyond the ordinary, made if it has nothing yet.
    pub(crate) fn extra_mut(&mut self) -> &mut Extra<T, G> {
        self.extra.get_or_insert_default()
    }

    pub(crate) fn extra_if_any(&mut self) -> Option<&mut Extra<T, G>> {
        self.extra.as_deref_mut()
    }

    #[inline]
    pub(crate) fn extra(&self) -> Option<&Extra<T, G>> {
        self.extra.as_deref()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.paused)
    }

    /// The oldest message behind the head.
    pub(crate) fn oldest_parked(&self) -> Option<&T> {
        self.parked.as_ref()?.front()
    }

    /// Whether nothing of this key is going to start before time passes or somebody acts.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        match self.state {
            State::Backoff { .. } | State::Halted { .. } => true,
            State::Resting { why, .. } => why != Rest::Linger && why != Rest::Idle,
            State::Called | State::Ready | State::Running { .. } => false,
        }
    }

    /// Whether nothing but a message or an operator can let this lane go on.
    pub(crate) fn is_endless(&self) -> bool {
        match self.state {
            State::Halted { .. } => true,
            State::Resting { why, until } => {
                until.is_none() && !matches!(why, Rest::Loading | Rest::Recording)
            }
            State::Backoff { .. } => self.is_paused(),
            State::Called | State::Ready | State::Running { .. } => false,
        }
    }

    /// Whether it waits for more messages to come into its batch.
    pub(crate) fn lingers(&self) -> bool {
        matches!(
            self.state,
            State::Resting {
                why: Rest::Linger,
                ..
            }
        )
    }

    /// Whether it holds nothing, runs nothing and has nothing to remember.
    pub(crate) fn is_bare(&self) -> bool {
        let State::Resting { why, until: None } = self.state else {
            return false;
        };
        why == Rest::Idle && self.depth() == 0 && !self.is_paused()
    }

    /// Whether it rests with nothing in it.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        matches!(
            self.state,
            State::Resting {
                why: Rest::Idle,
                ..
            }
        )
    }

    pub(crate) fn is_halted(&self) -> bool {
        matches!(self.state, State::Halted { .. })
    }

    /// Whether it waits for a decision: about its head, or about a gap.
    pub(crate) fn is_stopped(&self) -> bool {
        let why = match self.state {
            State::Resting { why, .. } => Some(why),
            _ => None,
        };
        self.is_halted() || why == Some(Rest::HaltedGap)
    }

    /// Whether its turn, or its call, is out.
    pub(crate) fn is_out(&self) -> bool {
        matches!(
            self.state,
            State::Called | State::Ready | State::Running { .. }
        )
    }

    /// When the head is due, if it waits for time.
    pub(crate) fn backs_off_until(&self) -> Option<Instant> {
        match self.state {
            State::Backoff { until, .. } => Some(until),
            _ => None,
        }
    }

    /// The head, if the lane holds it.
    pub(crate) fn head(&self) -> Option<&H> {
        match &self.state {
            State::Backoff { head, .. } | State::Halted { head } => Some(head),
            _ => None,
        }
    }

    /// The head, if the lane holds it.
    pub(crate) fn head_mut(&mut self) -> Option<&mut H> {
        match &mut self.state {
            State::Backoff { head, .. } | State::Halted { head } => Some(head),
            _ => None,
        }
    }

    pub(crate) fn full(&mut self) -> Option<&mut Full<G>> {
        self.extra.as_mut()?.full.as_mut()
    }

    #[inline]
    pub(crate) fn gate(&self) -> Option<&G> {
        self.extra.as_ref()?.full.as_ref().map(|full| &full.gate)
    }

    pub(crate) fn set_full(&mut self, gate: G, slot: usize) {
        self.extra_mut().full = Some(Full {
            gate,
            granted: 0,
            slot,
        });
    }

    pub(crate) fn take_full(&mut self) -> Option<Full<G>> {
        self.extra.as_mut()?.full.take()
    }

    /// A message was accepted for this key.
    #[inline]
    pub(crate) fn offer(
        &mut self,
        item: T,
        limit: usize,
        at_limit: AtLimit,
        spares: &Spares<T>,
    ) -> Offered<T> {
        self.step(Event::Offer);
        if self.depth() < limit || at_limit == AtLimit::Park {
            self.park(item, spares);
            return Offered::Parked;
        }
        match at_limit {
            #[cfg(keylane_mutant = "drop-newest")]
            AtLimit::DropOldest => Offered::Displaced(item),
            #[cfg(not(keylane_mutant = "drop-newest"))]
            AtLimit::DropOldest => match self.unpark() {
                Some(oldest) => {
                    self.park(item, spares);
                    Offered::Displaced(oldest)
                }
                // Only the head is here, and the head has been promised its turn.
                None => Offered::Refused(item),
            },
            AtLimit::Refuse | AtLimit::Park => Offered::Refused(item),
        }
    }

    /// Lets the call of a resting lane out.
    pub(crate) fn call(&mut self) {
        self.step(Event::Call);
        self.state = State::Called;
    }

    /// The head settled, in a lane that thinks: its call is out again.
    pub(crate) fn finish_calling(&mut self) {
        self.step(Event::Ask);
        self.state = State::Called;
    }

    /// Takes the first parked message for the one who has the call: it is the head now, and out.
    pub(crate) fn pick(&mut self) -> Option<T> {
        self.step(Event::Pick);
        let item = self.unpark()?;
        self.state = State::Ready;
        Some(item)
    }

    /// Nothing may start now.
    pub(crate) fn rest(&mut self, why: Rest, until: Option<Instant>) {
        self.step(Event::Rest);
        self.state = State::Resting { why, until };
    }

    /// Changes what a resting lane waits for.
    pub(crate) fn rest_on(&mut self, why: Rest, until: Option<Instant>) {
        debug_assert_eq!(self.phase(), Phase::Resting);
        self.state = State::Resting { why, until };
    }

    /// Nothing is in the lane any more, and it stays.
    pub(crate) fn rest_again(&mut self, why: Rest) {
        self.state = State::Resting { why, until: None };
    }

    /// There is nothing to run and nothing to remember.
    pub(crate) fn leave(&mut self) {
        self.step(Event::Leave);
    }

    /// Parks at the back, whatever the limit says.
    pub(crate) fn append(&mut self, item: T, spares: &Spares<T>) {
        self.step(Event::Offer);
        self.park(item, spares);
    }

    /// Parks in front of everything: this message was out and has not started.
    pub(crate) fn put_back(&mut self, item: T, spares: &Spares<T>) {
        self.parked
            .get_or_insert_with(|| spares.take())
            .push_front(item);
    }

    /// Takes the oldest parked message out, for one that takes its place.
    pub(crate) fn take_parked(&mut self) -> Option<T> {
        self.unpark()
    }

    /// Takes out every parked message that is chosen, in order.
    pub(crate) fn extract(&mut self, mut chosen: impl FnMut(&T) -> bool) -> Vec<T> {
        let Some(parked) = self.parked.as_mut() else {
            return Vec::new();
        };
        if !parked.iter().any(&mut chosen) {
            return Vec::new();
        }
        let (mut out, mut stay) = (Vec::new(), Backlog::new());
        while let Some(item) = parked.pop_front() {
            if chosen(&item) {
                out.push(item);
            } else {
                stay.push_back(item);
            }
        }
        **parked = stay;
        out
    }

    pub(crate) fn parked(&self) -> impl Iterator<Item = &T> {
        self.parked.iter().flat_map(|parked| parked.iter())
    }

    pub(crate) fn parked_len(&self) -> usize {
        self.parked.as_ref().map_or(0, |parked| parked.len())
    }

    /// The handler of the head returned `Pending`.
    pub(crate) fn wait(&mut self, since: Instant, attempt: u32, parked_at: u64) {
        self.step(Event::Wait);
        self.state = State::Running {
            since,
            attempt,
            parked_at,
        };
    }

    /// The head settled.
    #[inline]
    pub(crate) fn finish(&mut self) -> Next<T> {
        self.step(Event::Finish);
        self.advance()
    }

    /// The head comes back to wait for its next attempt.
    pub(crate) fn back_off(&mut self, head: Box<H>, until: Instant) {
        self.step(Event::BackOff);
        self.state = State::Backoff { until, head };
    }

    /// The wait is over: the head goes out again.
    pub(crate) fn due(&mut self) -> Box<H> {
        self.step(Event::Due);
        self.take_head().expect("a lane in backoff holds its head")
    }

    /// The head was given up on; nothing starts until `resume` or `skip`.
    pub(crate) fn halt(&mut self, head: Box<H>) {
        self.step(Event::Halt);
        self.state = State::Halted { head };
    }

    /// The halted head goes out again.
    pub(crate) fn resume(&mut self) -> Box<H> {
        self.step(Event::Resume);
        self.take_head().expect("a halted lane holds its head")
    }

    /// Everything the lane holds, the head first if it is here. A lane whose head is out stays.
    pub(crate) fn hand_back(&mut self) -> (Option<Box<H>>, Vec<T>) {
        self.step(Event::HandBack);
        let head = self.take_head();
        #[cfg_attr(keylane_mutant = "end-forgets-parked", allow(unused_mut))]
        let mut parked: Vec<T> = std::iter::from_fn(|| self.unpark()).collect();
        if let Some(extra) = self.extra.as_deref_mut() {
            extra.merged = 0;
            extra.lingered = false;
            parked.extend(extra.sequencer.iter_mut().flat_map(Sequencer::take_early));
        }
        #[cfg(keylane_mutant = "end-forgets-parked")]
        let parked = Vec::<T>::into_iter(parked).skip(1).collect();
        (head, parked)
    }

    pub(crate) fn parked_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.parked.iter_mut().flat_map(|parked| parked.iter_mut())
    }

    /// Gives the memory of an emptied lane to the next one.
    #[inline]
    pub(crate) fn recycle(self, spares: &Spares<T>) {
        if let Some(parked) = self.parked {
            spares.give(parked);
        }
        if let Some(extra) = self.extra {
            forget(extra);
        }
    }

    #[inline]
    fn park(&mut self, item: T, spares: &Spares<T>) {
        self.parked
            .get_or_insert_with(|| spares.take())
            .push_back(item);
    }

    /// Gives up the parked messages that are not to be kept.
    pub(crate) fn retain_parked(&mut self, keep: impl FnMut(&T) -> bool) {
        if let Some(parked) = &mut self.parked {
            parked.retain(keep);
        }
    }

    #[inline]
    fn unpark(&mut self) -> Option<T> {
        self.parked.as_mut()?.pop_front()
    }

    #[inline]
    fn has_parked(&self) -> bool {
        self.parked
            .as_ref()
            .is_some_and(|parked| !parked.is_empty())
    }

    #[inline]
    fn advance(&mut self) -> Next<T> {
        self.state = State::Ready;
        match self.unpark() {
            Some(item) => Next::Start(item),
            None => Next::Remove,
        }
    }

    /// Whether a timer is set for the head that the lane holds.
    pub(crate) fn is_timed(&self) -> bool {
        matches!(self.state, State::Backoff { .. }) && self.timer() == Timer::Set
    }

    pub(crate) fn timer(&self) -> Timer {
        self.extra.as_ref().map_or(Timer::Set, |extra| extra.timer)
    }

    /// Takes a head that the lane holds; its turn is out from here on.
    fn take_head(&mut self) -> Option<Box<H>> {
        if let Some(extra) = self.extra.as_deref_mut() {
            extra.timer = Timer::Set;
        }
        match std::mem::replace(&mut self.state, State::Ready) {
            State::Backoff { head, .. } | State::Halted { head } => Some(head),
            out => {
                self.state = out;
                None
            }
        }
    }

    fn step(&self, event: Event) {
        debug_assert!(
            self.phase().after(event, self.has_parked()).is_some(),
            "{event:?} cannot happen to a lane that is {:?}",
            self.phase()
        );
    }
}

/// Cold, so that the way of plain lanes does not carry the dropping of what they do not have.
#[cold]
fn forget<T, G>(extra: Box<Extra<T, G>>) {
    drop(extra);
}

impl<T, G> Extra<T, G> {
    /// Messages that are neither the head nor parked in the deque.
    fn beside(&self) -> usize {
        self.merged + self.mates + self.sequencer.as_ref().map_or(0, Sequencer::early_len)
    }
}
