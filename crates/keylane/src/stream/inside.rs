//! The elements that are inside: one of each key in flight, the others parked behind it.

use std::convert::Infallible;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::FuturesUnordered;

use super::flight::{Flight, Keyed, Landed, Thrown};
use crate::engine::Quiet;
use crate::lanes::{AtLimit, LaneMap, Offered};

type Lanes<K, T> = LaneMap<Quiet<K>, Parked<T>, Infallible, ()>;

/// One task and no lock that anybody waits for: the fewest shards there can be.
const SHARDS: usize = 2;

/// Knows nothing of where elements come from and where answers go.
pub(super) struct Inside<K, T, Fut> {
    lanes: Lanes<K, T>,
    futures: FuturesUnordered<Flight<K, Fut>>,
    /// Futures that are to finish; `futures` also has those that were given up.
    in_flight: usize,
    /// In lanes, and held.
    parked: usize,
    /// The element for which there is no room in its lane.
    held: Option<Arrival<K, T>>,
    /// The key whose head is gone, and whose lane has not moved on.
    freed: Option<Keyed<K>>,
    /// Elements from this one on do not start.
    over_from: u64,
}

/// An element, and its place in the stream.
pub(super) struct Parked<T> {
    pub(super) index: u64,
    pub(super) element: Quiet<T>,
}

/// An element that is not in its lane.
pub(super) struct Arrival<K, T> {
    pub(super) at: Keyed<K>,
    pub(super) parked: Parked<T>,
}

/// The place of an element, and what its future answered or threw.
pub(super) type Outcome<A> = (u64, Result<A, Thrown>);

/// Elements that will have no future, because something panicked.
#[must_use = "their places must not be waited for, and the panic goes on"]
pub(super) struct Lost {
    pub(super) indices: Vec<u64>,
    pub(super) thrown: Thrown,
}

impl Lost {
    fn one(index: u64, thrown: Thrown) -> Self {
        let indices = vec![index];
        Self { indices, thrown }
    }
}

impl<K: Hash + Eq + Clone, T, Fut: Future> Inside<K, T, Fut> {
    pub(super) fn new() -> Self {
        Self {
            lanes: LaneMap::new(Some(SHARDS)),
            futures: FuturesUnordered::new(),
            in_flight: 0,
            parked: 0,
            held: None,
            freed: None,
            over_from: u64::MAX,
        }
    }

    /// Puts an element into its lane, and starts it if it is alone there. If the lane is full, it is
    /// held.
    pub(super) fn enter(
        &mut self,
        arrival: Arrival<K, T>,
        lane_capacity: usize,
        f: &mut impl FnMut(T) -> Fut,
    ) -> Result<(), Lost> {
        let Arrival { at, parked } = arrival;
        let index = parked.index;
        let mut waiting = Some(parked);
        #[cfg(keylane_mutant = "stream-hot-key")]
        let lane_capacity = usize::MAX.max(lane_capacity);
        // Unwind safety: the map runs the key's code before it changes anything.
        let entered = catch_unwind(AssertUnwindSafe(|| {
            let spares = self.lanes.spares();
            self.lanes.enter(at.hash, &at.key, |lane| {
                let parked = waiting.take().expect("an element is offered once");
                lane.park(parked, lane_capacity, AtLimit::Refuse, spares)
            })
        }));
        match entered {
            Ok(Some(Offered::Parked)) => self.parked += 1,
            Ok(Some(Offered::Refused(parked) | Offered::Displaced(parked))) => {
                self.parked += 1;
                self.held = Some(Arrival { at, parked });
            }
            Ok(None) => {
                let parked = waiting.expect("a lane that was made has taken nothing");
                return self.start(at, parked, f);
            }
            Err(thrown) => return Err(Lost::one(index, thrown)),
        }
        Ok(())
    }

    /// Moves the lane of the key that was freed on: its oldest parked element starts.
    ///
    /// A key that does not find its lane, because its `Eq` is wrong, loses what is parked there.
    ///
    /// # Panics
    ///
    /// If the key's `Eq` does; then it is asked again next time.
    pub(super) fn move_on(&mut self, f: &mut impl FnMut(T) -> Fut) -> Result<(), Lost> {
        let Some(at) = &self.freed else {
            return Ok(());
        };
        let advanced = self.lanes.advance(at.hash, &at.key, |lane| {
            #[cfg(keylane_mutant = "stream-overtake")]
            if let Some(oldest) = lane.take_parked() {
                let _ = lane.park(oldest, usize::MAX, AtLimit::Park, self.lanes.spares());
            }
            Some(((), lane.finish()))
        });
        let at = self.freed.take();
        match (advanced, at) {
            (Some(((), Some(parked))), Some(at)) => {
                self.parked -= 1;
                self.start(at, parked, f)
            }
            (Some(((), None)), _) | (_, None) => Ok(()),
            (None, Some(at)) => Err(self.strand(at.hash)),
        }
    }

    /// Gives up the lane of a key that is not equal to itself.
    #[cold]
    fn strand(&mut self, hash: u64) -> Lost {
        let mut parked = Vec::new();
        self.lanes.sweep(|_, of, lane| {
            if of == hash {
                parked.extend(lane.hand_back().1);
            }
            of != hash
        });
        self.parked -= parked.len();
        let indices = parked.iter().map(|parked| parked.index);
        let indices = indices.filter(|index| *index < self.over_from).collect();
        let Err(thrown) = catch_unwind(|| -> Infallible {
            panic!("a key is not equal to itself: what is parked behind it is lost")
        });
        Lost { indices, thrown }
    }

    /// The next future that has finished; its key is freed. `None`: there are no futures.
    pub(super) fn poll_landed(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Outcome<Fut::Output>>> {
        loop {
            match Pin::new(&mut self.futures).poll_next(cx) {
                Poll::Ready(Some(Some(landed))) => {
                    let Landed { at, index, answer } = landed;
                    self.in_flight -= 1;
                    #[cfg(keylane_mutant = "stream-wedged-by-panic")]
                    if answer.is_err() {
                        return Poll::Ready(Some((index, answer)));
                    }
                    self.freed = Some(at);
                    return Poll::Ready(Some((index, answer)));
                }
                Poll::Ready(Some(None)) => {}
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// From this element on nothing starts, and what is in flight is dropped.
    pub(super) fn cut(&mut self, over_from: u64) {
        self.over_from = over_from.min(self.over_from);
        self.take_held();
        let mut in_flight = 0;
        for flight in Pin::new(&mut self.futures).iter_pin_mut() {
            if flight.index() >= self.over_from {
                #[cfg(not(keylane_mutant = "stream-stop-flies-on"))]
                flight.give_up();
            } else if !flight.is_given_up() {
                in_flight += 1;
            }
        }
        self.in_flight = in_flight;
    }

    /// Drops what is left of it once it is over.
    pub(super) fn clear(&mut self) {
        self.futures = FuturesUnordered::new();
        self.lanes = LaneMap::new(Some(SHARDS));
        self.parked = 0;
    }

    fn start(
        &mut self,
        at: Keyed<K>,
        parked: Parked<T>,
        f: &mut impl FnMut(T) -> Fut,
    ) -> Result<(), Lost> {
        let Parked { index, element } = parked;
        if index >= self.over_from {
            // Its lane stays as it is: what is behind it is over as well.
            return Ok(());
        }
        let element = element.into_inner();
        match catch_unwind(AssertUnwindSafe(|| f(element))) {
            Ok(future) => {
                self.in_flight += 1;
                self.futures.push(Flight::new(at, index, future));
                Ok(())
            }
            Err(thrown) => {
                self.freed = Some(at);
                Err(Lost::one(index, thrown))
            }
        }
    }
}

impl<K, T, Fut> Inside<K, T, Fut> {
    pub(super) fn take_held(&mut self) -> Option<Arrival<K, T>> {
        let held = self.held.take()?;
        self.parked -= 1;
        Some(held)
    }

    pub(super) fn holds(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// Elements that have no answer.
    pub(super) fn len(&self) -> usize {
        self.in_flight + self.parked
    }

    /// Whether nothing in here is going to move.
    pub(super) fn is_still(&self) -> bool {
        self.in_flight == 0 && self.held.is_none() && self.freed.is_none()
    }
}
