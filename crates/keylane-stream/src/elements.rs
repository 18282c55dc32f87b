//! The elements that were pulled and have no output yet: one of each key in flight, the others
//! parked behind it.

use std::convert::Infallible;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::FuturesUnordered;
use keylane_lanes::{AtLimit, LaneMap, Offered};
use keylane_rt::unwind::Quiet;

use super::keyed_future::{FinishedFuture, HashedKey, KeyedFuture, PanicPayload};

type Lanes<K, T> = LaneMap<Quiet<K>, ParkedElement<T>, Infallible, ()>;

/// The smallest number that the map allows: only one task uses it, so no lock is ever contended.
const SHARDS: usize = 2;

/// Knows neither where elements come from nor where outputs go.
pub(super) struct Elements<K, T, Fut> {
    lanes: Lanes<K, T>,
    futures: FuturesUnordered<KeyedFuture<K, Fut>>,
    /// Futures that will finish. `futures` also holds those that were cancelled.
    in_flight: usize,
    /// Elements that have not started: those in lanes and the held one.
    parked: usize,
    /// The element that waits because its lane is full. Nothing is pulled meanwhile.
    held: Option<KeyedElement<K, T>>,
    /// The key whose future has finished and whose next element has not started.
    freed: Option<HashedKey<K>>,
    /// Elements from this index on do not start.
    stop_from: u64,
}

/// An element and its index in the stream.
pub(super) struct ParkedElement<T> {
    pub(super) index: u64,
    pub(super) element: Quiet<T>,
}

/// An element with its key, before it starts or is parked.
pub(super) struct KeyedElement<K, T> {
    pub(super) hashed: HashedKey<K>,
    pub(super) parked: ParkedElement<T>,
}

/// The index of an element, and the output of its future or its panic.
pub(super) type IndexedOutput<A> = (u64, Result<A, PanicPayload>);

/// Elements that will have no future, because the user's code panicked.
#[must_use = "their outputs must be skipped, and the panic resumed"]
pub(super) struct Lost {
    pub(super) indices: Vec<u64>,
    pub(super) payload: PanicPayload,
}

impl Lost {
    fn one(index: u64, payload: PanicPayload) -> Self {
        let indices = vec![index];
        Self { indices, payload }
    }
}

impl<K: Hash + Eq + Clone, T, Fut: Future> Elements<K, T, Fut> {
    pub(super) fn new() -> Self {
        Self {
            lanes: LaneMap::new(Some(SHARDS)),
            futures: FuturesUnordered::new(),
            in_flight: 0,
            parked: 0,
            held: None,
            freed: None,
            stop_from: u64::MAX,
        }
    }

    /// Starts an element if its key has no future, and parks it otherwise. If its lane is full, it
    /// is held.
    pub(super) fn start_or_park(
        &mut self,
        element: KeyedElement<K, T>,
        lane_capacity: usize,
        f: &mut impl FnMut(T) -> Fut,
    ) -> Result<(), Lost> {
        let KeyedElement { hashed, parked } = element;
        let index = parked.index;
        let mut waiting = Some(parked);
        // Unwind safety: the map calls the key's code before it changes anything.
        let entered = catch_unwind(AssertUnwindSafe(|| {
            let spares = self.lanes.spares();
            self.lanes.enter(hashed.hash, &hashed.key, |lane| {
                let parked = waiting.take().expect("the map calls this once");
                lane.park(parked, lane_capacity, AtLimit::Refuse, spares)
            })
        }));
        match entered {
            Ok(Some(Offered::Parked)) => self.parked += 1,
            Ok(Some(Offered::Refused(parked) | Offered::Displaced(parked))) => {
                self.parked += 1;
                self.held = Some(KeyedElement { hashed, parked });
            }
            Ok(None) => {
                let parked = waiting.expect("a new lane takes no element");
                return self.start(hashed, parked, f);
            }
            Err(payload) => return Err(Lost::one(index, payload)),
        }
        Ok(())
    }

    /// Starts the oldest parked element of the freed key.
    ///
    /// If the key does not find its lane, because its `Eq` is wrong, what is parked there is lost.
    ///
    /// # Panics
    ///
    /// If the key's `Eq` does. The key stays freed, and the next call tries again.
    pub(super) fn start_next(&mut self, f: &mut impl FnMut(T) -> Fut) -> Result<(), Lost> {
        let Some(hashed) = &self.freed else {
            return Ok(());
        };
        let advanced = self
            .lanes
            .advance(hashed.hash, &hashed.key, |lane| Some(((), lane.finish())));
        let hashed = self.freed.take();
        match (advanced, hashed) {
            (Some(((), Some(parked))), Some(hashed)) => {
                self.parked -= 1;
                self.start(hashed, parked, f)
            }
            (Some(((), None)), _) | (_, None) => Ok(()),
            (None, Some(hashed)) => Err(self.strand(hashed.hash)),
        }
    }

    /// Drops the lane of a key that is not equal to itself.
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
        let indices = indices.filter(|index| *index < self.stop_from).collect();
        let Err(payload) = catch_unwind(|| -> Infallible {
            panic!("a key is not equal to itself: the elements that wait behind it are lost")
        });
        Lost { indices, payload }
    }

    /// The next future that has finished; its key is freed. `None`: there are no futures.
    pub(super) fn poll_finished(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<IndexedOutput<Fut::Output>>> {
        loop {
            match Pin::new(&mut self.futures).poll_next(cx) {
                Poll::Ready(Some(Some(finished))) => {
                    let FinishedFuture {
                        hashed,
                        index,
                        output,
                    } = finished;
                    self.in_flight -= 1;
                    self.freed = Some(hashed);
                    return Poll::Ready(Some((index, output)));
                }
                Poll::Ready(Some(None)) => {}
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// From this index on, no element starts, and the futures in flight are dropped.
    pub(super) fn stop(&mut self, stop_from: u64) {
        self.stop_from = stop_from.min(self.stop_from);
        self.take_held();
        let mut in_flight = 0;
        for future in Pin::new(&mut self.futures).iter_pin_mut() {
            if future.index() >= self.stop_from {
                future.cancel();
            } else if !future.is_cancelled() {
                in_flight += 1;
            }
        }
        self.in_flight = in_flight;
    }

    /// Drops cancelled futures and elements that will not start.
    pub(super) fn clear(&mut self) {
        self.futures = FuturesUnordered::new();
        self.lanes = LaneMap::new(Some(SHARDS));
        self.parked = 0;
    }

    fn start(
        &mut self,
        hashed: HashedKey<K>,
        parked: ParkedElement<T>,
        f: &mut impl FnMut(T) -> Fut,
    ) -> Result<(), Lost> {
        let ParkedElement { index, element } = parked;
        if index >= self.stop_from {
            // Its lane stays as it is: what is parked behind it does not start either.
            return Ok(());
        }
        let element = element.into_inner();
        match catch_unwind(AssertUnwindSafe(|| f(element))) {
            Ok(future) => {
                self.in_flight += 1;
                self.futures.push(KeyedFuture::new(hashed, index, future));
                Ok(())
            }
            Err(payload) => {
                self.freed = Some(hashed);
                Err(Lost::one(index, payload))
            }
        }
    }
}

impl<K, T, Fut> Elements<K, T, Fut> {
    pub(super) fn take_held(&mut self) -> Option<KeyedElement<K, T>> {
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

    /// Elements that have no output yet.
    pub(super) fn len(&self) -> usize {
        self.in_flight + self.parked
    }

    /// Whether no element is in flight, held or about to start.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.held.is_none() && self.freed.is_none()
    }
}
