//! The methods that every stream gets.

use std::hash::Hash;

use futures::{Stream, TryStream};

use super::for_each::{ForEachKeyed, TryForEachKeyed};
use super::map::{MapKeyed, MapKeyedUnordered};
#[cfg(doc)]
use super::on_error::OnError;
use super::try_map::{TryMapKeyed, TryMapKeyedUnordered};

/// Keyed work on any [`Stream`]: in order for each key, with a limit on the keys at once.
///
/// The methods are `buffered`, `buffer_unordered` and `for_each_concurrent` of the `futures` crate,
/// with a key. At most one future of a key is in flight. A key starts its next element as soon as
/// the one before has finished, whether or not its output was taken. Elements of a busy key are
/// parked in a lane of their own (`lane_capacity`), so a hot key does not use up the concurrency of
/// others.
///
/// All work happens in the task that polls: nothing is spawned, no runtime is needed, and elements,
/// keys and futures need to be neither `Send` nor `'static`. Nothing proceeds unless the adapter is
/// polled. If an adapter is dropped, it drops its futures and the parked elements.
///
/// # Limits
///
/// | setting | default | at the limit |
/// | --- | --- | --- |
/// | `concurrency`, the first argument | none | nothing is pulled |
/// | `lane_capacity` | 64 elements of a key | nothing is pulled until the key has room |
/// | `capacity` | the concurrency times the capacity of a lane | nothing is pulled |
///
/// Also, nothing is pulled while as many outputs as the concurrency are ready and not taken.
///
/// # Panics
///
/// A panic of the stream, of `key`, of `f`, of a future, or of the key's `Hash`, `Eq` or `Clone`
/// panics in the poll of the adapter. The element that panicked is lost, and no other is: polled
/// again, the adapter continues with all others in order, those of the same key included. A panic
/// in the `Drop` of an element, a key or a future is logged and has no other effect. If a key is
/// not equal to itself, the poll panics, and the elements that are parked behind that key are lost.
///
/// # Examples
///
/// ```
/// use futures::{StreamExt, stream};
/// use keylane_stream::KeyedStreamExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let readings = stream::iter([("kitchen", 20), ("cellar", 12), ("kitchen", 21)]);
/// let fahrenheit: Vec<_> = readings
///     .map_keyed(8, |(room, _)| *room, |(room, celsius)| async move {
///         tokio::task::yield_now().await; // a request, say: one at a time for each room
///         (room, celsius * 9 / 5 + 32)
///     })
///     .collect()
///     .await;
/// assert_eq!(fahrenheit, [("kitchen", 68), ("cellar", 53), ("kitchen", 69)]);
/// # }
/// ```
pub trait KeyedStreamExt: Stream {
    /// Runs `f` for each element, and yields the outputs in the order of the elements.
    ///
    /// An output that is ready before that of an older element waits for it, and counts against
    /// `capacity`. Work on other keys continues meanwhile.
    ///
    /// # Panics
    ///
    /// If `concurrency` is zero. When polled: [see above](KeyedStreamExt#panics).
    ///
    /// # Cancel safety
    ///
    /// If a future of `next()` is dropped, nothing is lost: elements stay in the adapter, and the
    /// next poll continues with them.
    ///
    /// # Examples
    ///
    /// [See above](KeyedStreamExt#examples).
    #[track_caller]
    fn map_keyed<K, G, F, Fut>(
        self,
        concurrency: usize,
        key: G,
        f: F,
    ) -> MapKeyed<Self, K, G, F, Fut>
    where
        Self: Sized,
        K: Hash + Eq + Clone,
        G: FnMut(&Self::Item) -> K,
        F: FnMut(Self::Item) -> Fut,
        Fut: Future,
    {
        MapKeyed::new(self, concurrency, key, f)
    }

    /// Runs `f` for each element, and yields the outputs as they are ready: those of one key in
    /// order.
    ///
    /// # Panics
    ///
    /// If `concurrency` is zero. When polled: [see above](KeyedStreamExt#panics).
    ///
    /// # Cancel safety
    ///
    /// If a future of `next()` is dropped, nothing is lost: elements stay in the adapter, and the
    /// next poll continues with them.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::{StreamExt, stream};
    /// use keylane_stream::KeyedStreamExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let slow_and_fast = stream::iter([("slow", 1), ("slow", 2), ("fast", 1)]);
    /// let order: Vec<_> = slow_and_fast
    ///     .map_keyed_unordered(8, |(name, _)| *name, |(name, n)| async move {
    ///         if name == "slow" {
    ///             tokio::task::yield_now().await;
    ///         }
    ///         (name, n)
    ///     })
    ///     .collect()
    ///     .await;
    /// assert_eq!(order, [("fast", 1), ("slow", 1), ("slow", 2)]);
    /// # }
    /// ```
    #[track_caller]
    fn map_keyed_unordered<K, G, F, Fut>(
        self,
        concurrency: usize,
        key: G,
        f: F,
    ) -> MapKeyedUnordered<Self, K, G, F, Fut>
    where
        Self: Sized,
        K: Hash + Eq + Clone,
        G: FnMut(&Self::Item) -> K,
        F: FnMut(Self::Item) -> Fut,
        Fut: Future,
    {
        MapKeyedUnordered::new(self, concurrency, key, f)
    }

    /// Runs `f` for each element. The future is ready when the stream has ended and all work is
    /// done.
    ///
    /// # Panics
    ///
    /// If `concurrency` is zero. When polled: [see above](KeyedStreamExt#panics).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, it drops the futures in flight and the parked
    /// elements. It can also be polled by reference, left, and polled again later.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::cell::RefCell;
    /// use std::collections::HashMap;
    ///
    /// use futures::stream;
    /// use keylane_stream::KeyedStreamExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let totals = RefCell::new(HashMap::new()); // nothing is sent to another thread
    /// stream::iter([("ann", 3), ("bob", 4), ("ann", 5)])
    ///     .for_each_keyed(8, |(user, _)| *user, |(user, cents)| {
    ///         let totals = &totals;
    ///         async move { *totals.borrow_mut().entry(user).or_insert(0) += cents }
    ///     })
    ///     .await;
    /// assert_eq!(totals.into_inner(), HashMap::from([("ann", 8), ("bob", 4)]));
    /// # }
    /// ```
    #[track_caller]
    fn for_each_keyed<K, G, F, Fut>(
        self,
        concurrency: usize,
        key: G,
        f: F,
    ) -> ForEachKeyed<Self, K, G, F, Fut>
    where
        Self: Sized,
        K: Hash + Eq + Clone,
        G: FnMut(&Self::Item) -> K,
        F: FnMut(Self::Item) -> Fut,
        Fut: Future<Output = ()>,
    {
        ForEachKeyed::new(self, concurrency, key, f)
    }

    /// Like [`map_keyed`](Self::map_keyed), for a stream and for futures that can fail.
    ///
    /// The first error is the last output ([`OnError::Stop`]), unless [`TryMapKeyed::on_error`] is
    /// set.
    ///
    /// # Panics
    ///
    /// If `concurrency` is zero. When polled: [see above](KeyedStreamExt#panics).
    ///
    /// # Cancel safety
    ///
    /// As [`map_keyed`](Self::map_keyed).
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::{StreamExt, TryStreamExt, stream};
    /// use keylane_stream::KeyedStreamExt;
    /// use keylane_stream::OnError;
    ///
    /// async fn load(row: u32) -> Result<u32, String> {
    ///     if row % 10 == 7 { Err(format!("row {row} is refused")) } else { Ok(row) }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let rows = || stream::iter((5..9).map(Ok));
    ///
    /// // Up to the first error.
    /// let loaded = rows().try_map_keyed(4, |row| row % 2, load);
    /// let loaded: Result<Vec<_>, _> = loaded.try_collect().await;
    /// assert_eq!(loaded, Err("row 7 is refused".to_owned()));
    ///
    /// // All rows, each error in its place.
    /// let loaded = rows().try_map_keyed(4, |row| row % 2, load).on_error(OnError::Continue);
    /// let loaded: Vec<_> = loaded.collect().await;
    /// assert_eq!(loaded, [Ok(5), Ok(6), Err("row 7 is refused".to_owned()), Ok(8)]);
    /// # }
    /// ```
    #[track_caller]
    fn try_map_keyed<K, G, F, Fut, A>(
        self,
        concurrency: usize,
        key: G,
        f: F,
    ) -> TryMapKeyed<Self, K, G, F, Fut>
    where
        Self: TryStream + Sized,
        K: Hash + Eq + Clone,
        G: FnMut(&Self::Ok) -> K,
        F: FnMut(Self::Ok) -> Fut,
        Fut: Future<Output = Result<A, Self::Error>>,
    {
        TryMapKeyed::new(self, concurrency, key, f)
    }

    /// Like [`map_keyed_unordered`](Self::map_keyed_unordered), for a stream and for futures that
    /// can fail.
    ///
    /// The first error is the last output ([`OnError::Stop`]), and all unfinished work is dropped,
    /// unless [`TryMapKeyedUnordered::on_error`] is set.
    ///
    /// # Panics
    ///
    /// If `concurrency` is zero. When polled: [see above](KeyedStreamExt#panics).
    ///
    /// # Cancel safety
    ///
    /// As [`map_keyed_unordered`](Self::map_keyed_unordered).
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::{TryStreamExt, stream};
    /// use keylane_stream::KeyedStreamExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), std::num::ParseIntError> {
    /// let numbers = stream::iter(["3", "4", "5"].map(Ok));
    /// let parsed = numbers
    ///     .try_map_keyed_unordered(8, |text| text.len(), async |text| text.parse::<u64>());
    /// let sum = parsed.try_fold(0, async |sum, n| Ok(sum + n)).await?;
    /// assert_eq!(sum, 12);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    fn try_map_keyed_unordered<K, G, F, Fut, A>(
        self,
        concurrency: usize,
        key: G,
        f: F,
    ) -> TryMapKeyedUnordered<Self, K, G, F, Fut>
    where
        Self: TryStream + Sized,
        K: Hash + Eq + Clone,
        G: FnMut(&Self::Ok) -> K,
        F: FnMut(Self::Ok) -> Fut,
        Fut: Future<Output = Result<A, Self::Error>>,
    {
        TryMapKeyedUnordered::new(self, concurrency, key, f)
    }

    /// Like [`for_each_keyed`](Self::for_each_keyed), for a stream and for futures that can fail.
    ///
    /// The first error ends the work ([`OnError::Stop`]), unless [`TryForEachKeyed::on_error`] is
    /// set.
    ///
    /// # Errors
    ///
    /// The first error that was seen, of the stream or of a future. With [`OnError::Stop`] it is
    /// returned at once and all other work is dropped, with [`OnError::Continue`] when all is done.
    ///
    /// # Panics
    ///
    /// If `concurrency` is zero. When polled: [see above](KeyedStreamExt#panics).
    ///
    /// # Cancel safety
    ///
    /// As [`for_each_keyed`](Self::for_each_keyed).
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::stream;
    /// use keylane_stream::KeyedStreamExt;
    /// use keylane_stream::OnError;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let orders = stream::iter([(1, 250), (2, 0), (1, 99)].map(Ok));
    /// let billed = orders
    ///     .try_for_each_keyed(8, |(user, _)| *user, |(user, cents)| async move {
    ///         if cents == 0 { Err(format!("user {user} has nothing to pay")) } else { Ok(()) }
    ///     })
    ///     .on_error(OnError::Continue)
    ///     .await;
    /// assert_eq!(billed, Err("user 2 has nothing to pay".to_owned()));
    /// # }
    /// ```
    #[track_caller]
    fn try_for_each_keyed<K, G, F, Fut>(
        self,
        concurrency: usize,
        key: G,
        f: F,
    ) -> TryForEachKeyed<Self, K, G, F, Fut>
    where
        Self: TryStream + Sized,
        K: Hash + Eq + Clone,
        G: FnMut(&Self::Ok) -> K,
        F: FnMut(Self::Ok) -> Fut,
        Fut: Future<Output = Result<(), Self::Error>>,
    {
        TryForEachKeyed::new(self, concurrency, key, f)
    }
}

impl<S: Stream + ?Sized> KeyedStreamExt for S {}
