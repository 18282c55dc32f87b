//! One lane: a pure state machine. No async, no Tokio, no clock, no lock.

use super::backlog::{Backlog, Spares};
use crate::clock::Instant;

/// Where the head of a lane is. Everything behind the head is parked.
///
/// In `Ready` and `Running` the head is out: it travels as a *turn*, the one right to run this
/// key, from the ready queue to a runner. There is one turn per lane, so two futures of one key
/// cannot exist. In `Backoff` and `Halted` the lane itself holds the head.
#[derive(Debug)]
pub(crate) enum State<H> {
    /// The turn is in the ready queue, or its handler is in its first poll.
    Ready,
    /// The handler returned `Pending` at least once.
    Running { since: Instant, attempt: u32 },
    /// The head waits for its next attempt, or for a dead-letter sink to recover.
    Backoff { until: Instant, head: Box<H> },
    /// The head was given up on and the policy is to stop: nothing starts until somebody decides.
    Halted { head: Box<H> },
}

/// The name of a state, for legality and for the transition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Absent,
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
    /// A halted head was settled by hand.
    Skip,
    /// Everything the lane holds is handed back.
    HandBack,
}

impl Phase {
    #[cfg(all(test, not(keylane_shuttle)))]
    pub(crate) const ALL: [Self; 5] = [
        Self::Absent,
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

            // From `Running`: the handler waited and failed, and now the dead-letter sink waits.
            (Self::Ready | Self::Running, Event::Wait) => Some(Self::Running),
            (Self::Ready | Self::Running, Event::Finish) => Some(next),
            (Self::Ready | Self::Running, Event::BackOff) => Some(Self::Backoff),
            (Self::Ready | Self::Running, Event::Halt) => Some(Self::Halted),
            // The head is out and will find nothing behind it when it comes back.
            (Self::Ready | Self::Running, Event::HandBack) => Some(self),

            (Self::Backoff, Event::Due) => Some(Self::Ready),
            (Self::Halted, Event::Resume) => Some(Self::Ready),
            (Self::Halted, Event::Skip) => Some(next),
            (Self::Backoff | Self::Halted, Event::HandBack) => Some(Self::Absent),

            _ => None,
        }
    }
}

impl Event {
    #[cfg(all(test, not(keylane_shuttle)))]
    pub(crate) const ALL: [Self; 9] = [
        Self::Offer,
        Self::Wait,
        Self::Finish,
        Self::BackOff,
        Self::Due,
        Self::Halt,
        Self::Resume,
        Self::Skip,
        Self::HandBack,
    ];
}

/// What to do now that the head is gone.
#[derive(Debug)]
#[must_use = "the next message of the lane must start, or the lane be removed"]
pub(crate) enum Next<T> {
    /// This message is the head now, and its turn is out.
    Start(T),
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

/// The lane of one key. It exists only while it holds or runs something.
///
/// `T` is a parked message, `H` a head that the lane holds itself, `G` a gate.
#[derive(Debug)]
pub(crate) struct Lane<T, H, G> {
    state: State<H>,
    /// Boxed and absent in most lanes, which hold one message at a time: such a lane is made,
    /// moved and dropped at the price of a few words.
    parked: Option<Box<Backlog<T>>>,
    full: Option<Box<Full<G>>>,
}

impl<T, H, G> Lane<T, H, G> {
    /// A lane whose first message is its head: the caller holds the turn.
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            state: State::Ready,
            parked: None,
            full: None,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.state {
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
        1 + self.parked.as_ref().map_or(0, |parked| parked.len())
    }

    /// The oldest message behind the head.
    pub(crate) fn oldest_parked(&self) -> Option<&T> {
        self.parked.as_ref()?.front()
    }

    /// Whether nothing of this key is going to start before time passes or somebody acts.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(self.state, State::Backoff { .. } | State::Halted { .. })
    }

    pub(crate) fn is_halted(&self) -> bool {
        matches!(self.state, State::Halted { .. })
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
            State::Ready | State::Running { .. } => None,
        }
    }

    /// The head, if the lane holds it.
    pub(crate) fn head_mut(&mut self) -> Option<&mut H> {
        match &mut self.state {
            State::Backoff { head, .. } | State::Halted { head } => Some(head),
            State::Ready | State::Running { .. } => None,
        }
    }

    pub(crate) fn full(&mut self) -> Option<&mut Full<G>> {
        self.full.as_deref_mut()
    }

    #[inline]
    pub(crate) fn gate(&self) -> Option<&G> {
        self.full.as_ref().map(|full| &full.gate)
    }

    pub(crate) fn set_full(&mut self, gate: G, slot: usize) {
        self.full = Some(Box::new(Full {
            gate,
            granted: 0,
            slot,
        }));
    }

    pub(crate) fn take_full(&mut self) -> Option<Box<Full<G>>> {
        self.full.take()
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

    /// The handler of the head returned `Pending`.
    pub(crate) fn wait(&mut self, since: Instant, attempt: u32) {
        self.step(Event::Wait);
        self.state = State::Running { since, attempt };
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

    /// The halted head is settled by the caller; the lane goes on behind it.
    pub(crate) fn skip(&mut self) -> (Box<H>, Next<T>) {
        self.step(Event::Skip);
        let head = self.take_head().expect("a halted lane holds its head");
        (head, self.advance())
    }

    /// Everything the lane holds, the head first if it is here. A lane whose head is out stays.
    pub(crate) fn hand_back(&mut self) -> (Option<Box<H>>, Vec<T>) {
        self.step(Event::HandBack);
        let head = self.take_head();
        let parked = std::iter::from_fn(|| self.unpark()).collect();
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
    }

    #[inline]
    fn park(&mut self, item: T, spares: &Spares<T>) {
        self.parked
            .get_or_insert_with(|| spares.take())
            .push_back(item);
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

    /// Takes a head that the lane holds; its turn is out from here on.
    fn take_head(&mut self) -> Option<Box<H>> {
        match std::mem::replace(&mut self.state, State::Ready) {
            State::Backoff { head, .. } | State::Halted { head } => Some(head),
            out @ (State::Ready | State::Running { .. }) => {
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
