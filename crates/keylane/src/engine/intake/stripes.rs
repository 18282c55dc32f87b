//! The stripes of the striped intake. `turns.rs` says who places what is in them.

use keylane_lanes::Stripe;
use keylane_rt::Arc;
use keylane_rt::atomic::{AtomicBool, Ordering};

use super::super::end::ShutdownState;
use super::super::message::{Accepted, Queued};
use crate::observe::hot_keys::DepthFilter;
use crate::types::Types;

type MessageStripe<T> = Stripe<Accepted<T>, Box<Bench<T>>>;

/// The stripes of a dispatcher. With the channel as its intake it has none.
pub(crate) struct Stripes<T: Types> {
    pub(super) stripes: Box<[MessageStripe<T>]>,
    /// Whether a runner may start a message that it has placed. If not, the ready queue decides.
    pub(super) starts_alone: bool,
    /// The router is asked to take the turns. Partner: `take_turns`, which looks after it has
    /// cleared this.
    pub(super) asked: AtomicBool,
    shutdown: Arc<ShutdownState<T::Key, T::Message>>,
}

/// What a turn is taken with.
pub(super) struct Bench<T: Types> {
    pub(super) batch: Vec<Accepted<T>>,
    pub(super) jobs: Vec<Queued<T>>,
    /// The lanes of this stripe that are known to be deep.
    pub(super) grown: DepthFilter,
    /// The `accepted_at` of the last message of this stripe.
    pub(super) last_accepted_at: u64,
}

impl<T: Types> Stripes<T> {
    /// `count` is a power of two, or 0 for none.
    pub(crate) fn new(
        count: usize,
        starts_alone: bool,
        shutdown: Arc<ShutdownState<T::Key, T::Message>>,
    ) -> Self {
        let stripe = |_| {
            Stripe::new(Box::new(Bench {
                batch: Vec::new(),
                jobs: Vec::new(),
                grown: DepthFilter::new(),
                last_accepted_at: 0,
            }))
        };
        Self {
            stripes: (0..count).map(stripe).collect(),
            starts_alone,
            asked: AtomicBool::new(false),
            shutdown,
        }
    }

    /// Whether messages go into stripes.
    #[inline]
    pub(crate) fn are_used(&self) -> bool {
        !self.stripes.is_empty()
    }

    /// Refuses messages from now on.
    pub(super) fn close(&self) {
        self.stripes.iter().for_each(Stripe::close);
    }

    /// Whether no message waits to be placed.
    pub(crate) fn are_idle(&self) -> bool {
        self.stripes.iter().all(Stripe::is_idle)
    }

    /// Whether the router is asked to take turns.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// No runner can be recruited now: if messages wait to be placed, the router places them.
    #[inline]
    pub(crate) fn ask_router(&self) {
        if !self.is_asked() && self.stripes.iter().any(Stripe::is_called) {
            self.asked.store(true, Ordering::SeqCst);
            self.shutdown.wake_router();
        }
    }

    /// Entries of the ready queue that are no lanes.
    pub(crate) fn entries(&self) -> usize {
        let entered = |stripe: &&Stripe<_, _>| stripe.is_entered();
        self.stripes.iter().filter(entered).count()
    }

    #[inline]
    pub(super) fn index_of(&self, hash: u64) -> usize {
        // Bits that neither the slots of a table nor its tags use.
        (hash >> 32) as usize & (self.stripes.len() - 1)
    }
}

/// How many stripes are best for so many workers.
///
/// Fewer stripes make larger batches, more of them let more senders put messages in at once. On two
/// workers, a message takes half as long again with two stripes as with one.
pub(crate) fn stripes_for(workers: usize) -> usize {
    (workers / 2).next_power_of_two()
}
