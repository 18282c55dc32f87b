//! One message that a source has handed over.

use std::time::Duration;

use tokio::time::Instant;

use super::raw::RawMessage;

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
    /// Attempts that were started for it before. The next one has the number after it, and if that is
    /// more than a `retry` allows, the message is given up without another
    /// one. Only of a source that [counts attempts](super::Features::counts_attempts); with or
    /// without a [`start_guard`](super::Source::start_guard).
    pub attempts: u32,
    /// Its size in bytes, against `held_bytes`.
    pub bytes: u32,
}

impl<P> Delivery<RawMessage, P> {
    /// A raw message with its [size](RawMessage::size), which was not tried before, in the generation
    /// 0.
    pub fn raw(message: RawMessage, position: P) -> Self {
        let bytes = message.size();
        Self::new(message, position).bytes(bytes)
    }
}

impl<M, P> Delivery<M, P> {
    /// A message that was not tried before, in the generation 0, and of no size.
    pub fn new(message: M, position: P) -> Self {
        Self {
            message,
            position,
            generation: Generation(0),
            attempts: 0,
            bytes: 0,
        }
    }

    /// Its size in bytes; more than 4 GiB count as 4 GiB.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self
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

/// What a source reports of one of its parts: see [`Deliveries::part_failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartNews {
    /// The part fails.
    Failed {
        /// Which part.
        part: String,
        /// What is wrong with it.
        why: String,
    },
    /// The part works again, or is not ours any more.
    Recovered {
        /// Which part.
        part: String,
    },
}

/// What [`Source::receive`](super::Source::receive) fills: room for deliveries, and until when to
/// wait for the first one.
#[derive(Debug)]
pub struct Deliveries<M, P> {
    deliveries: Vec<Delivery<M, P>>,
    /// Deliveries that the source has settled itself, as dead letters.
    dead_lettered: u64,
    /// What the source says of its parts.
    parts: Vec<PartNews>,
    room: usize,
    /// Bytes that there is room for. The last delivery may go beyond.
    room_bytes: usize,
    /// Bytes that were handed over.
    bytes: usize,
    until: Instant,
}

impl<M, P> Deliveries<M, P> {
    /// Room for this many deliveries, to be waited for until this moment. For the tests of sources:
    /// the driver makes its own.
    pub fn new(room: usize, until: Instant) -> Self {
        Self {
            deliveries: Vec::new(),
            dead_lettered: 0,
            parts: Vec::new(),
            room,
            room_bytes: usize::MAX,
            bytes: 0,
            until,
        }
    }

    /// Sets how many deliveries and bytes there is room for, and until when to wait for them. A
    /// driver calls this before each [`receive`](super::Source::receive).
    #[inline]
    pub fn make_room(&mut self, room: usize, bytes: usize, until: Instant) {
        self.room = room;
        self.room_bytes = bytes;
        self.until = until;
    }

    /// Hands a message over. What is pushed stays, also if the future of `receive` is dropped
    /// afterwards.
    ///
    /// Push no more than there is [`room`](Self::room) for. What goes beyond is taken all the same,
    /// and counts against the room of the next call.
    #[inline]
    pub fn push(&mut self, delivery: Delivery<M, P>) {
        self.bytes = self.bytes.saturating_add(delivery.bytes as usize);
        self.deliveries.push(delivery);
    }

    /// A message was received, and its dead letter is durable already. It is counted, and never
    /// reaches a handler.
    pub fn dead_lettered(&mut self) {
        self.add_dead_lettered(1);
    }

    /// The same for several messages.
    pub(crate) fn add_dead_lettered(&mut self, count: u64) {
        self.dead_lettered += count;
    }

    /// A part of the source fails, and the others go on: a partition, a stream, a table. Say so each
    /// time that it fails; it stands in
    /// `IntakeStats::failed_parts` until it has
    /// [recovered](Self::part_recovered), or the source is opened again.
    ///
    /// `part` names it for a person, and `why` says what is wrong and what to do about it. Neither
    /// has secrets.
    pub fn part_failed(&mut self, part: impl Into<String>, why: impl Into<String>) {
        self.parts.push(PartNews::Failed {
            part: part.into(),
            why: why.into(),
        });
    }

    /// A part that has failed works again, or is not ours any more. Of one that has not failed it
    /// changes nothing.
    pub fn part_recovered(&mut self, part: impl Into<String>) {
        self.parts.push(PartNews::Recovered { part: part.into() });
    }

    /// How many deliveries there is room for. With none, `receive` waits for other news only.
    ///
    /// There is none either once as many [bytes](Delivery::bytes) were handed over as there was room
    /// for. A source that looks before each delivery goes beyond by one message at most.
    #[inline]
    pub fn room(&self) -> usize {
        match self.bytes < self.room_bytes {
            true => self.room.saturating_sub(self.deliveries.len()),
            false => 0,
        }
    }

    /// How many bytes there is room for; `usize::MAX` without a limit.
    #[inline]
    pub fn room_bytes(&self) -> usize {
        self.room_bytes.saturating_sub(self.bytes)
    }

    /// Whether nothing was handed over yet, and nothing was said of a part.
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty() && self.dead_lettered == 0 && self.parts.is_empty()
    }

    /// Whether news of parts is all that was handed over.
    pub fn is_news_alone(&self) -> bool {
        self.deliveries.is_empty() && self.dead_lettered == 0 && !self.parts.is_empty()
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

    /// Takes what was handed over. For drivers, for the tests of sources, and for sources around
    /// other sources.
    #[inline]
    pub fn take(&mut self) -> Vec<Delivery<M, P>> {
        self.bytes = 0;
        std::mem::take(&mut self.deliveries)
    }

    /// Takes the number of messages whose dead letters are durable already.
    #[inline]
    pub fn take_dead_lettered(&mut self) -> u64 {
        std::mem::take(&mut self.dead_lettered)
    }

    /// Takes the news of parts.
    #[inline]
    pub fn take_parts(&mut self) -> Vec<PartNews> {
        std::mem::take(&mut self.parts)
    }

    /// Gives the memory back that [`take`](Self::take) has taken, so that the next deliveries need no
    /// other. What is in it is dropped.
    #[inline]
    pub fn reuse(&mut self, mut taken: Vec<Delivery<M, P>>) {
        if self.deliveries.capacity() == 0 {
            taken.clear();
            self.deliveries = taken;
        }
    }

    /// Takes what another one says beside its messages: which parts fail and have recovered, and how
    /// many messages are dead letters already. For sources around other sources: one that leaves it
    /// there is [empty](Self::is_empty) no more.
    pub fn take_news<N, Q>(&mut self, of: &mut Deliveries<N, Q>) {
        self.parts.append(&mut of.parts);
        self.dead_lettered += std::mem::take(&mut of.dead_lettered);
    }
}
