//! Grommet: two shards, each a thread with a runtime of its own.

use std::convert::Infallible;
use std::sync::Arc;

use grommet::{ClassId, Disposition, IO, Processor, Router, Scheduler, ShardConfig, SubmitError};

use crate::contender::{Answers, Contender};
use crate::limits::Limits;
use crate::work::{Echo, Work};

const SHARDS: usize = 2;

/// A shard holds no more futures than 65,536, its own flushes among them.
const MOST_IN_FLIGHT: usize = 65_000;

struct Item<W: Work>(W::Message);

impl<W: Work> grommet::Work for Item<W> {
    type Key = u64;
    type Id = ();

    fn key(&self) -> u64 {
        W::key(&self.0)
    }

    fn class(&self) -> ClassId {
        IO
    }
}

#[derive(Clone)]
struct Handler<W>(W);

impl<W: Work> Processor for Handler<W> {
    type Work = Item<W>;
    type State = ();
    type Error = Infallible;

    async fn process(
        &self,
        _: u64,
        _: Option<()>,
        item: Item<W>,
    ) -> Result<Disposition<()>, Infallible> {
        self.0.run(item.0).await;
        // Nothing is kept for a key that has nothing to do.
        Ok(Disposition::Drop)
    }
}

/// The router, and the scheduler that joins its threads when the last handle goes.
pub(super) struct Shards<W: Work> {
    // Dropped first: the scheduler waits until no sender is left.
    router: Arc<Router<Item<W>>>,
    scheduler: Arc<Scheduler<Handler<W>>>,
}

impl<W: Work> Clone for Shards<W> {
    fn clone(&self) -> Self {
        Self {
            router: Arc::clone(&self.router),
            scheduler: Arc::clone(&self.scheduler),
        }
    }
}

impl<W: Work> Contender<W> for Shards<W> {
    async fn start(limits: Limits) -> Self {
        let in_flight = limits.concurrency.div_ceil(SHARDS).min(MOST_IN_FLIGHT);
        // Half of the capacity waits in the mailboxes, half is admitted.
        let depth = limits.capacity.div_ceil(2 * SHARDS);
        let mut config = ShardConfig::new([in_flight, 1]);
        config.scheduler.max_pending = depth.max(in_flight);
        config.scheduler.queue_reserve = config.scheduler.max_pending.min(65_536);
        let scheduler = Scheduler::builder(SHARDS, [in_flight, 1])
            .shard_config(config)
            .mailbox(depth)
            // Neither deadlines nor its metrics are wanted here, and this saves a clock read.
            .stamp_arrival(false)
            .spawn(|_| Handler(W::default()))
            .expect("the mailbox is no deeper than the scheduler admits");
        Self {
            router: Arc::clone(scheduler.router()),
            scheduler: Arc::new(scheduler),
        }
    }

    async fn send(&mut self, message: W::Message) {
        // `submit` can sleep for ever: a sender woken into a queue that is full again does not
        // register a second time.
        let mut item = Item(message);
        while let Err(SubmitError::Full(back)) = self.router.try_submit(item) {
            item = back;
            tokio::task::yield_now().await;
        }
        // As with every try: a producer has to yield at times.
        tokio::task::coop::consume_budget().await;
    }
}

impl Answers for Shards<Echo> {}
