//! One message that a source has handed over.

use std::time::Duration;

use tokio::time::Instant;

use super::raw::RawMessage;

/// A period in which this process owns a partition, a connection or a lease. The source numbers its
/// generations, and uses no number twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// Most characters kept of an id.
const LONGEST_ID: usize = 64;

/// A message that a source hands over.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Delivery<M, P> {
    /// The message.
    pub message: M,
    /// The position, which identifies the message to its source.
    pub position: P,
    /// The generation of the position.
    pub generation: Generation,
    /// The number of attempts that started before this delivery. The next attempt has the number
    /// after it. If that is more than a `retry` allows, the message is given up without another
    /// attempt. Only for a source that [counts attempts](super::Features::counts_attempts), with or
    /// without a [`start_guard`](super::Source::start_guard).
    pub attempts: u32,
    /// The size in bytes, which counts against `held_bytes`.
    pub bytes: u32,
    /// The producer's id of the message as text, for the lines of the log about it.
    pub id: Option<Box<str>>,
}

impl<P> Delivery<RawMessage, P> {
    /// Returns a delivery of a raw message with its [size](RawMessage::size) and its
    /// [id](RawMessage::id), no earlier attempt and the generation 0.
    pub fn raw(message: RawMessage, position: P) -> Self {
        let bytes = message.size();
        let id = message.id.as_deref().map(shown);
        let mut delivery = Self::new(message, position).bytes(bytes);
        delivery.id = id;
        delivery
    }
}

impl<M, P> Delivery<M, P> {
    /// Returns a delivery of a message with no earlier attempt, the generation 0 and the size 0.
    pub fn new(message: M, position: P) -> Self {
        Self {
            message,
            position,
            generation: Generation(0),
            attempts: 0,
            bytes: 0,
            id: None,
        }
    }

    /// Sets the size in bytes. More than 4 GiB count as 4 GiB.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self
    }

    /// Sets the producer's id of the message, which the log shows: the first 64 characters of it,
    /// with a replacement for what is not UTF-8.
    #[must_use]
    pub fn id(mut self, id: &[u8]) -> Self {
        self.id = Some(shown(id));
        self
    }

    /// Sets the generation.
    #[must_use]
    pub fn generation(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }

    /// Sets the number of earlier attempts.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }
}

/// An id as the log shows it.
fn shown(id: &[u8]) -> Box<str> {
    keylane_rt::cut(String::from_utf8_lossy(id).into_owned(), LONGEST_ID).into()
}

/// News of one part of a source: see [`Deliveries::part_failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartNews {
    /// The part fails.
    Failed {
        /// The name of the part.
        part: String,
        /// What is wrong with it.
        why: String,
    },
    /// The part works again, or does not belong to this process any more.
    Recovered {
        /// The name of the part.
        part: String,
    },
}

/// The buffer that [`Source::receive`](super::Source::receive) fills: the room for deliveries, and
/// the time until which `receive` waits for the first one.
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
    /// Returns a buffer with room for this many deliveries, to wait for until this time. For the
    /// tests of sources: the driver makes its own.
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

    /// Sets the room for deliveries and bytes, and the time until which to wait for them. A driver
    /// calls this before each [`receive`](super::Source::receive).
    #[inline]
    pub fn make_room(&mut self, room: usize, bytes: usize, until: Instant) {
        self.room = room;
        self.room_bytes = bytes;
        self.until = until;
    }

    /// Hands a message over. The message stays, also if the future of `receive` is dropped
    /// afterwards.
    ///
    /// Push no more messages than there is [`room`](Self::room) for. Further messages are taken all
    /// the same, and count against the room of the next call.
    #[inline]
    pub fn push(&mut self, delivery: Delivery<M, P>) {
        self.bytes = self.bytes.saturating_add(delivery.bytes as usize);
        self.deliveries.push(delivery);
    }

    /// Counts a received message whose dead letter is durable already. The message never reaches a
    /// handler.
    pub fn dead_lettered(&mut self) {
        self.add_dead_lettered(1);
    }

    /// The same for several messages.
    pub(crate) fn add_dead_lettered(&mut self, count: u64) {
        self.dead_lettered += count;
    }

    /// Reports that a part of the source fails while the others go on: a partition, a stream, a
    /// table. Call it each time the part fails. The part stays in `IntakeStats::failed_parts` until
    /// it has [recovered](Self::part_recovered), or the source is opened again.
    ///
    /// `part` names the part for a person, and `why` says what is wrong and what to do about it.
    /// Neither has secrets.
    pub fn part_failed(&mut self, part: impl Into<String>, why: impl Into<String>) {
        self.parts.push(PartNews::Failed {
            part: part.into(),
            why: why.into(),
        });
    }

    /// Reports that a failed part works again, or does not belong to this process any more. Has no
    /// effect for a part that has not failed.
    pub fn part_recovered(&mut self, part: impl Into<String>) {
        self.parts.push(PartNews::Recovered { part: part.into() });
    }

    /// Returns how many deliveries there is room for. With none, `receive` waits for other news
    /// only.
    ///
    /// There is no room either once the [bytes](Delivery::bytes) of the deliveries reach the room
    /// in bytes. A source that checks before each delivery exceeds it by one message at most.
    #[inline]
    pub fn room(&self) -> usize {
        match self.bytes < self.room_bytes {
            true => self.room.saturating_sub(self.deliveries.len()),
            false => 0,
        }
    }

    /// Returns how many bytes there is room for; `usize::MAX` without a limit.
    #[inline]
    pub fn room_bytes(&self) -> usize {
        self.room_bytes.saturating_sub(self.bytes)
    }

    /// Returns whether nothing was handed over yet: no message, no dead letter and no news of a
    /// part.
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty() && self.dead_lettered == 0 && self.parts.is_empty()
    }

    /// Returns whether only news of parts was handed over.
    pub fn is_news_alone(&self) -> bool {
        self.deliveries.is_empty() && self.dead_lettered == 0 && !self.parts.is_empty()
    }

    /// Returns the number of deliveries that were handed over.
    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// Returns the time at which `receive` has to return [`Received::Idle`](super::Received::Idle)
    /// if nothing has come.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Returns the time from now to [`until`](Self::until).
    pub fn wait(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Takes the deliveries. For drivers, for the tests of sources, and for sources around other
    /// sources.
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

    /// Takes the memory of a vector that [`take`](Self::take) returned, so that the next deliveries
    /// need no allocation. Drops what is in the vector.
    #[inline]
    pub fn reuse(&mut self, mut taken: Vec<Delivery<M, P>>) {
        if self.deliveries.capacity() == 0 {
            taken.clear();
            self.deliveries = taken;
        }
    }

    /// Takes the news of another buffer: which parts fail and have recovered, and how many messages
    /// are dead letters already. For sources around other sources. The other buffer is not
    /// [empty](Self::is_empty) as long as its news stays there.
    pub fn take_news<N, Q>(&mut self, of: &mut Deliveries<N, Q>) {
        self.parts.append(&mut of.parts);
        self.dead_lettered += std::mem::take(&mut of.dead_lettered);
    }
}
