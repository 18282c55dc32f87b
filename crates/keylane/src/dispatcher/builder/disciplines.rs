//! What a lane does with a new message, and what it lets start.

use std::time::Duration;

use keylane_lanes::BatchRules;

use super::settings::Builder;
use crate::discipline::{Coalesce, Delayed, Discipline, Sequence};
use crate::engine::Share;

impl<K, M, E, F, S> Builder<K, M, E, F, S> {
    /// Keeps at most one message of a key in flight and at most one waiting: see [`Coalesce`].
    pub fn coalesce(mut self, coalesce: Coalesce<M>) -> Self {
        self.config.settings.discipline = Discipline::Coalesce(coalesce);
        self
    }

    /// Gives coalesced messages the answer of the message that stands for them.
    ///
    /// Their receipts resolve with a clone of that answer, or of its failure. `O` is the handler's
    /// answer. Until then they count as messages of their lane. If the message that stands for them
    /// is never handled (purged, expired, handed back), they settle as
    /// [`Merged`](crate::error::ReceiptError::Merged). This setting needs
    /// [`coalesce`](Self::coalesce). The error must be `Clone`, which `std::io::Error` is not.
    pub fn share_answers<O>(mut self) -> Self
    where
        O: Clone + 'static,
        E: Clone + 'static,
    {
        self.config.share = Some(Box::new(Share {
            answer: O::clone,
            failure: E::clone,
        }));
        self
    }

    /// Handles the messages of a key in the order of their versions: see [`Sequence`].
    pub fn sequence(mut self, sequence: Sequence<K, M>) -> Self {
        self.config.sequence = Some(sequence);
        self
    }

    /// Gives the handler up to `max` messages of one key at once, in their order.
    ///
    /// The first message waits at most `linger` for more, from when a runner has time for it;
    /// `Duration::ZERO` takes what is there. Start the dispatcher with
    /// [`spawn_batches`](Self::spawn_batches).
    ///
    /// A batch counts as one handler in flight. A retry is a batch of one: see
    /// [`BatchAnswer`](crate::batch::BatchAnswer), also for why batches need a
    /// [`retry`](Self::retry). A batch is never larger than [`lane_capacity`](Self::lane_capacity)
    /// lets it grow. A message without a key is a batch of its own.
    pub fn batch(mut self, max: usize, linger: Duration) -> Self {
        self.config.settings.batch = Some(BatchRules { max, linger });
        self
    }

    /// Sets whether the messages of a key wait behind a message that may not start yet, or pass it.
    pub fn delayed(mut self, delayed: Delayed) -> Self {
        self.config.settings.delayed = delayed;
        self
    }

    /// Settles a message as expired if it has not started this long after it was accepted.
    ///
    /// The wait that [`send_when`](crate::Dispatcher::send_when) asks for is part of that time: a
    /// message with a longer wait never starts.
    ///
    /// Messages expire on time, also while their key waits for something else, if fewer than twice
    /// the [`capacity`](Self::capacity) of such times are in the future. Above that, a message
    /// expires when its turn comes. A head that waits for its next attempt expires when that
    /// attempt is due: it is not tried again.
    pub fn expire_after(mut self, lifetime: Duration) -> Self {
        self.config.lifetime = Some(Box::new(move |_| Some(lifetime)));
        self.config.settings.expires = !lifetime.is_zero();
        self
    }

    /// Like [`expire_after`](Self::expire_after), with a time of its own for each message; `None`
    /// never expires.
    ///
    /// `lifetime` is called once per message, in the task that sends it.
    pub fn expire_by(
        mut self,
        lifetime: impl Fn(&M) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.config.lifetime = Some(Box::new(lifetime));
        self.config.settings.expires = true;
        self
    }
}
