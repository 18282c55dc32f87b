//! Static routing whose number of lanes may change.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;

use keylane_rt::{Arc, oneshot};

use super::hash::{lane_of, point_of};
use crate::dispatcher::{Builder, Dispatcher};
use crate::engine::{Layout, MOST_LANES};
use crate::error::ResizeError;

/// A dispatcher with a fixed number of lanes, each for many keys, that can be changed while it
/// runs.
///
/// Made by [`Dispatcher::hash_lanes`]; everything that a [`Dispatcher`] can do is there.
pub type HashLanes<M, O = (), E = std::convert::Infallible> = Dispatcher<HashLane, M, O, E>;

/// One of the lanes of [`HashLanes`], and the key of its messages.
#[derive(Clone, Copy)]
pub struct HashLane {
    lane: usize,
    /// Where the message's own key lies in the hash space; says nothing about which lane this is.
    point: u64,
}

impl HashLane {
    fn new(point: u64, lanes: NonZeroUsize) -> Self {
        Self {
            lane: lane_of(point, lanes),
            point,
        }
    }

    /// The number of the lane, from 0.
    pub fn index(&self) -> usize {
        self.lane
    }

    /// The lane of the same key among so many.
    pub(crate) fn among(self, lanes: usize) -> Self {
        NonZeroUsize::new(lanes).map_or(self, |lanes| Self::new(self.point, lanes))
    }

    /// The lane of this number, to look at it or to act on it.
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
    /// #     Dispatcher::hash_lanes(eight, |order: &u64| *order).spawn(|_: u64| async move { Ok(()) })?;
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
    /// Starts a dispatcher with so many lanes, among which keys are spread by their hash, as
    /// [`hash_lane`](crate::routing::hash_lane) does it; [`resize`](HashLanes::resize) changes the number.
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
    /// Changes the number of lanes. Ready when every key is where it belongs.
    ///
    /// A key that moves drains from its old lane before the new lane starts a message of it: its
    /// new messages are kept aside meanwhile, in their order. So no message overtakes another one
    /// of its key, and no two are in flight. No other key waits for that, and nothing stops: keys
    /// that stay go on as before, and keys of different old lanes do not wait for each other. It is
    /// what Pulsar does with draining hashes when consumers come and go (PIP-379), in process.
    ///
    /// An old lane has drained when the messages are settled that were in it when the change began,
    /// of whichever key. One that is halted, or whose handler never returns, holds up the keys that
    /// move from it, and this future with them; [`HashLane::numbered`] names it, so that an
    /// operator can decide about it. With fewer lanes only those that go have to drain.
    ///
    /// What is kept aside counts like what is parked behind a failing head, first against
    /// [`stalled_capacity`](crate::Builder::stalled_capacity). Behind each old lane as much is kept
    /// as fits into a lane; at that limit only the senders of keys that move from there feel the
    /// policy of [`lane_capacity`](crate::Builder::lane_capacity). A new lane takes what was kept
    /// whatever its depth, and may be deeper than its limit by that. What expires meanwhile settles
    /// when it comes to its lane.
    ///
    /// Changes are carried out one at a time. Of those that wait for another one only the last is
    /// carried out, and the others are ready with it.
    ///
    /// A lane is what [`pause`](crate::LaneControl::pause), a rate per key, coalescing and the order of
    /// versions are about, and none of that moves with a key.
    ///
    /// # Errors
    ///
    /// [`ResizeError::Zero`] for no lanes, [`ResizeError::TooMany`] for more than 65,536,
    /// [`ResizeError::Closed`] if the dispatcher takes no more
    /// messages, now or before the change has come to its end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the change is carried out.
    pub async fn resize(&self, lanes: usize) -> Result<(), ResizeError> {
        if lanes == 0 {
            return Err(ResizeError::Zero);
        }
        if lanes > MOST_LANES {
            return Err(ResizeError::TooMany);
        }
        let places = self.engine.places.as_ref().ok_or(ResizeError::Closed)?;
        if self.is_closed() {
            return Err(ResizeError::Closed);
        }
        let (done, changed) = oneshot::channel();
        places.layout().ask(lanes, done);
        self.engine.shutdown.wake_router();
        changed.await.map_err(|_| ResizeError::Closed)
    }

    /// How many lanes there are. During a change, how many there are going to be.
    pub fn lanes(&self) -> usize {
        let places = self.engine.places.as_ref();
        places.map_or(0, |places| places.layout().lanes())
    }

    /// The lane of a key, to [`inspect`](Dispatcher::inspect) it or to act on it. During a change,
    /// the one to which the key belongs in the end; messages that are kept aside are in no lane.
    pub fn lane_of(&self, key: &(impl Hash + ?Sized)) -> HashLane {
        let lane = HashLane {
            lane: 0,
            point: point_of(key),
        };
        lane.among(self.lanes())
    }
}
