//! Room for a message, at the gate of its lane, in the capacity, in the bytes; and its way in.

use std::fmt;
use std::hash::Hash;

use keylane_rt::clock::Instant;
use keylane_rt::{self as rt, OwnedSemaphorePermit, SemaphorePermit, TryAcquireError};

use super::address::TooLarge;
use super::handle::Dispatcher;
use crate::engine::{Accepted, Gate, Obligation, Overflow, Reply, SourceSlot};
use crate::error::{SendError, TrySendError};
use crate::types::Of;

/// Room taken for one message. It goes back when this is dropped before the message is in.
#[derive(Debug)]
pub(super) struct TakenRoom<'a> {
    pub(super) count: SemaphorePermit<'a>,
    pub(super) bytes: Option<SemaphorePermit<'a>>,
    pub(super) gate: Option<OwnedSemaphorePermit>,
    pub(super) weight: u32,
}

impl TakenRoom<'_> {
    /// The message is in: its settlement returns the room.
    #[inline]
    pub(super) fn keep(self) {
        self.count.forget();
        if let Some(bytes) = self.bytes {
            bytes.forget();
        }
        if let Some(gate) = self.gate {
            gate.forget();
        }
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    LaneFull,
    TooLarge,
    Closed,
}

impl Refusal {
    pub(super) fn of<M>(self, message: M) -> TrySendError<M> {
        match self {
            Self::Full => TrySendError::Full(message),
            Self::LaneFull => TrySendError::LaneFull(message),
            Self::TooLarge => TrySendError::TooLarge(message),
            Self::Closed => TrySendError::Closed(message),
        }
    }

    /// For a sender that waits: what is full has room in the end.
    pub(super) fn of_waiting<M>(self, message: M) -> SendError<M> {
        match self {
            Self::LaneFull => SendError::LaneFull(message),
            Self::TooLarge => SendError::TooLarge(message),
            Self::Full | Self::Closed => SendError::Closed(message),
        }
    }

    fn of_try(error: TryAcquireError, full: Self) -> Self {
        match error {
            TryAcquireError::NoPermits => full,
            TryAcquireError::Closed => Self::Closed,
        }
    }
}

impl From<TooLarge> for Refusal {
    fn from(_: TooLarge) -> Self {
        Self::TooLarge
    }
}

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Waits for room.
    pub(super) async fn room(
        &self,
        key: Option<&K>,
        hash: u64,
        message: &M,
    ) -> Result<TakenRoom<'_>, Refusal> {
        let limit = self.engine.settings.capacity_bytes;
        let weight = self.address.weigh(message, limit)?;
        // Hardly any message has to wait, and then not even the future of the wait is made.
        if self.engine.table.rate_gate().is_some() {
            self.wait_for_rates().await?;
        }
        loop {
            let gate = match self.gate(key, hash, message) {
                None => None,
                Some(gate) => self.pass_gate(gate, key, hash, message).await?,
            };
            // Taking room that is there costs a tenth of waiting for it. No sender is overtaken:
            // while some wait, room goes to them and is never seen to be free.
            let mut waited = false;
            let count = match self.engine.room.messages.try_acquire() {
                Ok(count) => {
                    rt::consume_budget().await;
                    count
                }
                Err(_) => {
                    waited = true;
                    let acquired = self.engine.room.messages.acquire().await;
                    acquired.map_err(|_| Refusal::Closed)?
                }
            };
            let bytes = match &self.engine.room.bytes {
                None => None,
                Some(bytes) => match bytes.try_acquire_many(weight) {
                    Ok(taken) => Some(taken),
                    Err(_) => {
                        waited = true;
                        let acquired = bytes.acquire_many(weight).await;
                        Some(acquired.map_err(|_| Refusal::Closed)?)
                    }
                },
            };
            // The lane may have filled up meanwhile, perhaps with others that waited here: if they
            // all came in, one key could take all the room.
            if waited && gate.is_none() && self.gate(key, hash, message).is_some() {
                continue;
            }
            return Ok(TakenRoom {
                count,
                bytes,
                gate,
                weight,
            });
        }
    }

    /// Waits while the rates of too many keys are remembered.
    pub(super) async fn wait_for_rates(&self) -> Result<(), Refusal> {
        while let Some(gate) = self.engine.table.rate_gate() {
            if self.engine.room.messages.is_closed() {
                return Err(Refusal::Closed);
            }
            // It is closed when there is room: look again.
            let _ = gate.acquire().await;
        }
        Ok(())
    }

    /// Waits for room for a message of this size, and takes it. False: the dispatcher is closed.
    pub(crate) async fn take_room(&self, weight: u32) -> bool {
        let room = &self.engine.room;
        let taken = async {
            self.wait_for_rates().await.ok()?;
            let count = room.messages.acquire().await.ok()?;
            let bytes = match &room.bytes {
                Some(bytes) => Some(bytes.acquire_many(weight).await.ok()?),
                None => None,
            };
            let gate = None;
            Some(TakenRoom {
                count,
                bytes,
                gate,
                weight,
            })
        };
        taken.await.map(TakenRoom::keep).is_some()
    }

    /// The gate that this message has to pass, if its lane is full.
    #[inline]
    pub(crate) fn gate(&self, key: Option<&K>, hash: u64, message: &M) -> Option<Gate> {
        let gate = self.engine.table.gate(hash, key?)?;
        self.gate_for(gate, key, hash, message)
    }

    /// The gate of a full lane, unless it is this message that the lane waits for.
    #[cold]
    fn gate_for(&self, gate: Gate, key: Option<&K>, hash: u64, message: &M) -> Option<Gate> {
        let version = self
            .address
            .version
            .as_ref()
            .map(|version| version(message));
        let awaited = |version| {
            self.engine
                .table
                .is_awaited(hash, key?, version)
                .then_some(())
        };
        match version.and_then(awaited) {
            Some(()) => None,
            None => Some(gate),
        }
    }

    /// Waits at the gate of a full lane.
    async fn pass_gate(
        &self,
        mut gate: Gate,
        key: Option<&K>,
        hash: u64,
        message: &M,
    ) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        loop {
            if self.engine.room.messages.is_closed() {
                return Err(Refusal::Closed);
            }
            if self.engine.settings.overflow == Overflow::Reject {
                match gate.try_acquire_owned() {
                    Ok(permit) => return Ok(Some(permit)),
                    Err(TryAcquireError::NoPermits) => return Err(Refusal::LaneFull),
                    Err(TryAcquireError::Closed) => {}
                }
            } else if let Ok(permit) = gate.acquire_owned().await {
                return Ok(Some(permit));
            }
            // A closed gate is one whose lane has room, or is gone: look again.
            gate = match self.gate(key, hash, message) {
                Some(gate) => gate,
                None => return Ok(None),
            };
        }
    }

    /// Takes room if there is some at once.
    pub(super) fn try_room(
        &self,
        key: Option<&K>,
        hash: u64,
        message: &M,
    ) -> Result<TakenRoom<'_>, Refusal> {
        if self.engine.table.rate_gate().is_some() {
            return Err(Refusal::Full);
        }
        let count = self
            .engine
            .room
            .messages
            .try_acquire()
            .map_err(|error| Refusal::of_try(error, Refusal::Full))?;
        self.try_fill(count, key, hash, message)
    }

    /// Takes the remaining room for a message whose place in the capacity is taken.
    pub(super) fn try_fill<'a>(
        &'a self,
        count: SemaphorePermit<'a>,
        key: Option<&K>,
        hash: u64,
        message: &M,
    ) -> Result<TakenRoom<'a>, Refusal> {
        let limit = self.engine.settings.capacity_bytes;
        let weight = self.address.weigh(message, limit)?;
        let mut gate = None;
        while let Some(full) = self.gate(key, hash, message) {
            match full.try_acquire_owned() {
                Ok(permit) => gate = Some(permit),
                Err(TryAcquireError::NoPermits) => return Err(Refusal::LaneFull),
                Err(TryAcquireError::Closed) if self.engine.room.messages.is_closed() => {
                    return Err(Refusal::Closed);
                }
                Err(TryAcquireError::Closed) => continue,
            }
            break;
        }
        let bytes = match &self.engine.room.bytes {
            Some(bytes) => Some(
                bytes
                    .try_acquire_many(weight)
                    .map_err(|error| Refusal::of_try(error, Refusal::Full))?,
            ),
            None => None,
        };
        Ok(TakenRoom {
            count,
            bytes,
            gate,
            weight,
        })
    }

    /// From here on the message is accepted, or comes back at once: there is no await in between.
    #[inline]
    pub(super) fn put(
        &self,
        room: TakenRoom<'_>,
        key: Option<K>,
        hash: u64,
        message: M,
        reply: Option<Reply<Of<K, M, O, E>>>,
        not_before: Option<Instant>,
    ) -> Result<(), M> {
        let mut obligation = Obligation::new(room.weight, reply);
        if self.address.asks || not_before.is_some() {
            self.set_options(&message, not_before, &mut obligation);
        }
        let accepted = Accepted {
            key,
            hash,
            message,
            obligation,
        };
        match self.accept(accepted) {
            None => {
                room.keep();
                Ok(())
            }
            Some(message) => Err(message),
        }
    }

    /// Puts a message into the intake. Returns it if that is closed.
    #[inline]
    fn accept(&self, accepted: Accepted<Of<K, M, O, E>>) -> Option<M> {
        if self.engine.stripes.are_used() {
            match self.engine.put_into_stripe(accepted) {
                Ok(()) => None,
                Err(refused) => Some(refused.message),
            }
        } else {
            match self.channel.send(accepted) {
                Ok(()) => None,
                Err(refused) => Some(refused.0.message),
            }
        }
    }

    /// Puts a message of a source in. Its room has been taken.
    #[inline]
    pub(crate) fn put_of_source(
        &self,
        key: Option<K>,
        hash: u64,
        message: M,
        weight: u32,
        slot: Option<SourceSlot>,
    ) -> Result<(), M> {
        let mut obligation = match slot {
            Some(slot) => Obligation::of_source(weight, slot),
            None => Obligation::new(weight, None),
        };
        if self.address.asks {
            self.set_options(&message, None, &mut obligation);
        }
        let accepted = Accepted {
            key,
            hash,
            message,
            obligation,
        };
        self.accept(accepted).map_or(Ok(()), Err)
    }

    /// Whether lanes put messages into the order of their versions.
    pub(crate) fn sequences(&self) -> bool {
        self.address.version.is_some()
    }

    /// The key of a message, its hash and its size. `None`: it is larger than the capacity in
    /// bytes. Panics if any function of the message does.
    #[inline]
    pub(crate) fn locate(&self, message: &M) -> Option<(Option<K>, u64, u32)> {
        let limit = self.engine.settings.capacity_bytes;
        let weight = self.address.weigh(message, limit).ok()?;
        let (key, hash) = (self.address.locate)(message);
        if self.address.asks {
            self.ask(message);
        }
        Some((key, hash, weight))
    }

    /// Asks a message all that it is asked later, when a panic would have more to answer for.
    #[inline(never)]
    fn ask(&self, message: &M) {
        let address = &self.address;
        address.class.as_ref().map(|class| class(message));
        address.version.as_ref().map(|version| version(message));
        address.lifetime.as_ref().map(|lifetime| lifetime(message));
    }

    /// Sets what this message has besides its place: class, version, times.
    // Out of line, to keep the path of plain messages short.
    #[inline(never)]
    fn set_options(
        &self,
        message: &M,
        not_before: Option<Instant>,
        obligation: &mut Obligation<Of<K, M, O, E>>,
    ) {
        let address = &self.address;
        if let Some(class) = &address.class {
            obligation.charge_mut().class = class(message);
        }
        if let Some(version) = &address.version {
            obligation.set_version(version(message));
        }
        let lifetime = address.lifetime.as_ref().and_then(|of| of(message));
        if let Some(at) = lifetime.and_then(|lifetime| self.engine.clocks.expiry_after(lifetime)) {
            self.engine.slow_path.expect_untimely();
            obligation.set_expires_at(at);
        }
        if not_before.is_some() {
            self.engine.slow_path.expect_untimely();
            obligation.options_mut().not_before = not_before;
        }
    }
}
