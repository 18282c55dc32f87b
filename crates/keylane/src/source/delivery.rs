//! One message that a source has handed over.

use std::time::Duration;

use tokio::time::Instant;

/// One period in which a partition, a connection or a lease is ours. The source numbers them, and
/// uses no number again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// One message that a source hands over.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Delivery<M, P> {
    /// The message.
    pub message: M,
    /// What names it to its source.
    pub position: P,
    /// The generation that its position belongs to.
    pub generation: Generation,
    /// Attempts that were started for it before, as far as the source counts them.
    pub attempts: u32,
}

impl<M, P> Delivery<M, P> {
    /// A message that was not tried before, in the generation 0.
    pub fn new(message: M, position: P) -> Self {
        Self {
            message,
            position,
            generation: Generation(0),
            attempts: 0,
        }
    }

    /// Its generation.
    #[must_use]
    pub fn generation(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }

    /// How often it was tried before.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }
}

/// What [`Source::receive`](super::Source::receive) fills: room for deliveries, and until when to
/// wait for the first one.
#[derive(Debug)]
pub struct Deliveries<M, P> {
    pub(crate) deliveries: Vec<Delivery<M, P>>,
    /// Deliveries that the source has settled itself, as dead letters.
    pub(crate) dead_lettered: u64,
    pub(crate) room: usize,
    pub(crate) until: Instant,
}

impl<M, P> Deliveries<M, P> {
    /// Room for this many deliveries, to be waited for until this moment. For the tests of sources:
    /// the driver makes its own.
    pub fn new(room: usize, until: Instant) -> Self {
        Self {
            deliveries: Vec::new(),
            dead_lettered: 0,
            room,
            until,
        }
    }

    /// Hands a message over. What is pushed stays, also if the future of `receive` is dropped
    /// afterwards.
    ///
    /// Push no more than there is [`room`](Self::room) for. What goes beyond is taken all the same,
    /// and counts against the room of the next call.
    #[inline]
    pub fn push(&mut self, delivery: Delivery<M, P>) {
        self.deliveries.push(delivery);
    }

    /// A message was received, and its dead letter is durable already. It is counted, and never
    /// reaches a handler.
    pub fn dead_lettered(&mut self) {
        self.dead_lettered += 1;
    }

    /// How many deliveries there is room for. With none, `receive` waits for other news only.
    #[inline]
    pub fn room(&self) -> usize {
        self.room.saturating_sub(self.deliveries.len())
    }

    /// Whether nothing was handed over yet.
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty() && self.dead_lettered == 0
    }

    /// How many were handed over.
    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// The moment at which `receive` is to return [`Received::Idle`](super::Received::Idle) if
    /// nothing has come.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// How long that is from now.
    pub fn wait(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Takes what was handed over. For the tests of sources, and for sources around other sources.
    pub fn take(&mut self) -> Vec<Delivery<M, P>> {
        std::mem::take(&mut self.deliveries)
    }
}
