//! Watching a dispatcher: its counters, its events, its hot keys.

use std::fmt;
use std::hash::Hash;

use super::handle::Dispatcher;
use crate::engine::Events;
use crate::health::{Health, HealthLimits};
use crate::observe::hot_keys::Stop;
use crate::observe::{HotBy, HotKey, Measuring, Stats};

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Returns counters and gauges, without a walk over the lanes.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Returns whether the dispatcher takes and handles messages, and why not. [`Health::of`]
    /// combines it with the health of others, and of [sources](crate::consume::Intake::health).
    ///
    /// It costs about as much as [`stats`](Self::stats). That a dispatcher is full and nothing
    /// settles is observed between the calls too.
    pub fn health(&self) -> Health {
        self.health_within(&HealthLimits::new())
    }

    /// Like [`health`](Self::health), with limits.
    pub fn health_within(&self, limits: &HealthLimits) -> Health {
        self.engine.health(limits)
    }

    /// Subscribes to the events from now on: dead letters, discarded messages, halted and full
    /// lanes, gaps, handlers that block.
    ///
    /// A subscriber that does not keep up loses the oldest events and can count them; the engine
    /// never waits for it. Without a subscriber an event costs one relaxed load.
    pub fn events(&self) -> Events<K> {
        self.engine.probe.events()
    }

    /// Measures how long messages wait and attempts last, for as long as the returned value lives.
    ///
    /// Of few messages each one is measured, of many a share: at most some thousands a second.
    /// While nothing measures, an attempt costs a relaxed load.
    pub fn measure(&self) -> Measuring {
        self.engine.probe.times.measure()
    }

    /// Returns keys that an operator has paused, up to `most`, the one that was paused last first.
    /// Of more than 1,024 those that were paused first are missed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    pub async fn paused(&self, most: usize) -> Vec<K> {
        self.engine.table.stopped(most, Stop::Paused).await
    }

    /// Returns keys whose first message is halted, up to `most`, the one that was halted last
    /// first. Of more than 1,024 those that were halted first are missed; the old ones among them
    /// are in [`hottest`](Self::hottest).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    pub async fn halted(&self, most: usize) -> Vec<K> {
        self.engine.table.stopped(most, Stop::Halted).await
    }

    /// Returns keys whose first message waits for its next attempt or for the dead-letter sink, up
    /// to `most`, the oldest message first. Paused keys are not among them.
    ///
    /// It looks at the 1,024 oldest first messages that wait for anything: for an attempt, a
    /// decision, a time, a lease, a version, a store. Where more of them wait, the youngest keys
    /// are missed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    pub async fn failing(&self, most: usize) -> Vec<K> {
        self.engine.table.failing(most).await
    }

    /// Returns the `most` hottest keys, the hottest first.
    ///
    /// The details of a key are exact, as of a moment ago. No query walks all lanes: it looks at
    /// *candidates*, of which there are some hundreds:
    ///
    /// - Lanes that grew to 2, 4, 8, .. messages, or by 64. A lane deeper than all but 255 others,
    ///   when those were last looked at, is never missed. Lanes may be missed after a burst of many
    ///   deep lanes: each is looked at again by a query, or when another lane grows, one for 256
    ///   messages.
    /// - Handlers that wait. Up to a concurrency of 32,768 none is missed; of more than 1,024, none
    ///   of those that began first. Handlers in their first poll may be missed, and keys that wait
    ///   for a runner with one message.
    /// - Heads that wait for a retry, a sink or a decision. Those of the 1,024 oldest messages are
    ///   never missed. The others may be missed, until they fail again or there is room.
    /// - Keys whose handlers have waited. Keys with more than 1/256 of all that time are never
    ///   missed. Handlers that are ready at once take no time here.
    ///
    /// The last item is a *Space-Saving* sketch (Metwally, Agrawal and El Abbadi, 2005), and
    /// [`HotKey::busy_error`] its error. Time is counted by samples, four in each
    /// [`stuck_after`](crate::Builder::stuck_after), which is right on average for short waits too.
    /// Keys are distinguished by their hashes: of two keys with one hash, one is shown.
    ///
    /// The query looks at up to 2,560 lanes, locks one shard at a time, and yields in between.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use keylane::watching::HotBy;
    /// use keylane::Dispatcher;
    ///
    /// let orders = Dispatcher::builder(|order: &u64| order % 10)
    ///     .spawn(|_: u64| async move { std::future::pending::<Result<(), ()>>().await })?;
    /// for order in [1, 2, 3, 13, 23] {
    ///     orders.send(order).await?;
    /// }
    /// # while orders.stats().accepted < 5 { tokio::task::yield_now().await }
    /// let hottest = orders.hottest(1, HotBy::Depth).await;
    /// assert_eq!((hottest[0].key, hottest[0].depth), (3, 3));
    /// # orders.abort().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hottest(&self, most: usize, by: HotBy) -> Vec<HotKey<K>> {
        self.engine.table.hottest(most, by).await
    }
}
