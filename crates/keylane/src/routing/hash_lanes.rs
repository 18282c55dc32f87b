//! Static routing whose number of lanes may change.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;

use keylane_rt::{Arc, oneshot};

use super::hash::{lane_of, point_of};
use crate::dispatcher::{Builder, Dispatcher};
use crate::engine::{Layout, MOST_LANES};
use crate::error::ResizeError;

/// A dispatcher with a number of lanes that is fixed, and can be changed while it runs. Each lane
/// has many keys.
///
/// [`Dispatcher::hash_lanes`] builds it; it has all methods of a [`Dispatcher`].
pub type HashLanes<M, O = (), E = std::convert::Infallible> = Dispatcher<HashLane, M, O, E>;

/// One of the lanes of [`HashLanes`], and the key of its messages.
#[derive(Clone, Copy)]
pub struct HashLane {
    lane: usize,
    /// The point of the message's own key in the hash space; it does not determine the lane.
    point: u64,
}

impl HashLane {
    fn new(point: u64, lanes: NonZeroUsize) -> Self {
        Self {
            lane: lane_of(point, lanes),
            point,
        }
    }

    /// Returns the number of the lane, from 0.
    pub fn index(&self) -> usize {
        self.lane
    }

    /// The lane of the same key among so many.
    pub(crate) fn among(self, lanes: usize) -> Self {
        NonZeroUsize::new(lanes).map_or(self, |lanes| Self::new(self.point, lanes))
    }

    /// Returns the lane of this number, to inspect it or to act on it.
    ///
    /// It need not exist. After [`resize`](HashLanes::resize) to fewer lanes, an old lane that is
    /// halted or has not drained still has its number, though no key belongs to it any more:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::num::NonZeroUsize;
    /// # use keylane::routing::{HashLane, HashLanes};
    /// # use keylane::Dispatcher;
    /// # let eight = NonZeroUsize::new(8).ok_or("zero lanes")?;
    /// # let orders: HashLanes<u64, (), std::io::Error> =
    /// #     Dispatcher::hash_lanes(eight, |order: &u64| *order)
    /// #         .spawn(|_: u64| async move { Ok(()) })?;
    /// for index in 0..8 {
    ///     let lane = orders.lane(&HashLane::numbered(index));
    ///     if let Some(view) = lane.inspect() {
    ///         println!("lane {index} has {} messages: {:?}", view.depth, view.state);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn numbered(index: usize) -> Self {
        Self {
            lane: index,
            point: 0,
        }
    }
}

impl PartialEq for HashLane {
    fn eq(&self, other: &Self) -> bool {
        self.lane == other.lane
    }
}

impl Eq for HashLane {}

impl Hash for HashLane {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.lane);
    }
}

impl fmt::Debug for HashLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HashLane").field(&self.lane).finish()
    }
}

impl Dispatcher<(), ()> {
    /// Returns a builder of a dispatcher with this many lanes. Keys are spread among them by their
    /// hash, as in [`hash_lane`](crate::routing::hash_lane); [`resize`](HashLanes::resize) changes
    /// the number.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::num::NonZeroUsize;
    /// use keylane::routing::HashLanes;
    /// use keylane::Dispatcher;
    ///
    /// struct Order { user: u64 }
    ///
    /// let four = NonZeroUsize::new(4).ok_or("zero lanes")?;
    /// let orders: HashLanes<Order, (), std::io::Error> =
    ///     Dispatcher::hash_lanes(four, |order: &Order| order.user)
    ///         .spawn(|_: Order| async move { Ok(()) })?;
    /// for user in 0..100 {
    ///     orders.send(Order { user }).await?;
    /// }
    /// orders.resize(16).await?;
    /// assert_eq!(orders.lanes(), 16);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_lanes<K, M, E>(
        lanes: NonZeroUsize,
        key: impl Fn(&M) -> K + Send + Sync + 'static,
    ) -> Builder<HashLane, M, E, impl Fn(&M) -> Option<HashLane> + Send + Sync + 'static>
    where
        K: Hash,
        M: Send + Sync + 'static,
        E: fmt::Debug + Send + Sync + 'static,
    {
        let layout = Arc::new(Layout::new(lanes.get()));
        let seen = Arc::clone(&layout);
        let place = move |message: &M| {
            let lane = HashLane {
                lane: 0,
                point: point_of(&key(message)),
            };
            Some(lane.among(seen.lanes()))
        };
        Dispatcher::key_by_opt(place).layout(
            layout,
            HashLane::among,
            HashLane::numbered,
            HashLane::index,
        )
    }
}

impl<M, O, E> HashLanes<M, O, E>
where
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Changes the number of lanes. The future is ready when every key is in its new lane.
    ///
    /// A key that moves drains from its old lane before the new lane starts a message of it: its
    /// new messages are kept aside meanwhile, in their order. So no message overtakes another one
    /// of its key, and no two are in flight. No other key waits for that, and nothing stops: keys
    /// that stay go on as before, and keys of different old lanes do not wait for each other.
    /// Pulsar does the same with draining hashes when consumers come and go (PIP-379); this happens
    /// in one process.
    ///
    /// An old lane has drained when the messages are settled that were in it when the change began,
    /// of any key. A lane that is halted, or whose handler never returns, holds up the keys that
    /// move from it, and this future with them; [`HashLane::numbered`] names it, so that an
    /// operator can decide about it. With fewer lanes only those that are removed have to drain.
    ///
    /// Messages that are kept aside count like those parked behind a failing head, first against
    /// [`stalled_capacity`](crate::Builder::stalled_capacity). Behind each old lane as many are
    /// kept as fit into a lane; at that limit the policy of
    /// [`lane_capacity`](crate::Builder::lane_capacity) applies only to the senders of keys that
    /// move from there. A new lane takes these messages whatever its depth, and may exceed its
    /// limit by that. A message that expires meanwhile settles when it comes to its lane.
    ///
    /// Changes are made one at a time. Of several changes that wait for another one, only the last
    /// is made, and the others are ready with it.
    ///
    /// [`pause`](crate::LaneControl::pause), a rate per key, coalescing and the order of versions
    /// belong to a lane, and none of them moves with a key.
    ///
    /// # Errors
    ///
    /// [`ResizeError::Zero`] for no lanes, [`ResizeError::TooMany`] for more than 65,536,
    /// [`ResizeError::Closed`] if the dispatcher takes no more messages, now or before the change
    /// is complete.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect: the change is still made.
    pub async fn resize(&self, lanes: usize) -> Result<(), ResizeError> {
        if lanes == 0 {
            return Err(ResizeError::Zero);
        }
        if lanes > MOST_LANES {
            return Err(ResizeError::TooMany);
        }
        let places = self
            .engine
            .table
            .places
            .as_ref()
            .ok_or(ResizeError::Closed)?;
        if self.is_closed() {
            return Err(ResizeError::Closed);
        }
        let (done, changed) = oneshot::channel();
        places.layout().ask(lanes, done);
        self.engine.shutdown.wake_router();
        changed.await.map_err(|_| ResizeError::Closed)
    }

    /// Returns the number of lanes. During a change, it is the new number.
    pub fn lanes(&self) -> usize {
        let places = self.engine.table.places.as_ref();
        places.map_or(0, |places| places.layout().lanes())
    }

    /// Returns the lane of a key, to [`inspect`](Dispatcher::inspect) it or to act on it. During a
    /// change, it is the new lane of the key; messages that are kept aside are in no lane.
    pub fn lane_of(&self, key: &(impl Hash + ?Sized)) -> HashLane {
        let lane = HashLane {
            lane: 0,
            point: point_of(key),
        };
        lane.among(self.lanes())
    }
}
