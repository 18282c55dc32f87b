//! The obligation of the engine for a message, and the messages with it that are no job yet.

use keylane_lanes::Item;
use keylane_rt::clock::Instant;
use keylane_rt::oneshot;

use super::charge::Charge;
use crate::engine::sources::SourceSlot;
use crate::error::ReceiptError;
use crate::types::Types;

/// Where the answer to a submitted message goes.
pub(crate) type Reply<T> = oneshot::Sender<
    Result<<T as Types>::Output, ReceiptError<<T as Types>::Message, <T as Types>::Error>>,
>;

/// What the engine owes for an accepted message: exactly one settlement.
pub(crate) struct Envelope<T: Types> {
    pub(crate) obligation: Obligation<T>,
    /// Nanoseconds from the engine's start to the routing of the message. Each message has its
    /// own, and they grow in the order of acceptance.
    pub(crate) accepted_at: u64,
}

/// The charge of a message, and where its answer goes if it has a receipt.
///
/// As an enum the choice takes no extra memory, and every parked message has one. Of a receipt, a
/// version and a lifetime, one needs no box.
pub(crate) enum Obligation<T: Types> {
    Silent(Charge),
    Answer(Charge, Reply<T>),
    /// No receipt, and a version.
    Versioned(Charge, u64),
    /// No receipt, and when it expires: see [`Options::expires_at`].
    Expiring(Charge, u64),
    /// A source waits for its settlement.
    OfSource(Charge, SourceSlot),
    WithOptions(Charge, Box<Options<T>>),
}

/// The options of a message. Most messages have none.
pub(crate) struct Options<T: Types> {
    pub(crate) reply: Option<Reply<T>>,
    /// The source that waits for its settlement.
    pub(crate) source: Option<SourceSlot>,
    /// Its place among the messages of its key, where lanes sequence.
    pub(crate) version: u64,
    /// It must not start before.
    pub(crate) not_before: Option<Instant>,
    /// It must not start from then on, in nanoseconds since the epoch.
    pub(crate) expires_at: Option<u64>,
    /// The obligations of the messages that were merged into this one.
    pub(crate) merged: Vec<Obligation<T>>,
    /// The messages that start with this one, as one batch.
    pub(crate) members: Vec<Parked<T>>,
}

impl<T: Types> Default for Options<T> {
    fn default() -> Self {
        Self {
            reply: None,
            source: None,
            version: 0,
            not_before: None,
            expires_at: None,
            merged: Vec::new(),
            members: Vec::new(),
        }
    }
}

impl<T: Types> Obligation<T> {
    #[inline]
    pub(crate) fn new(weight: u32, reply: Option<Reply<T>>) -> Self {
        let charge = Charge::new(weight);
        match reply {
            Some(reply) => Self::Answer(charge, reply),
            None => Self::Silent(charge),
        }
    }

    /// For a message of a source.
    #[inline]
    pub(crate) fn of_source(weight: u32, slot: SourceSlot) -> Self {
        Self::OfSource(Charge::new(weight), slot)
    }

    /// Where its source waits for its settlement, if it has a source.
    #[inline]
    pub(crate) fn source(&self) -> Option<SourceSlot> {
        match self {
            Self::OfSource(_, slot) => Some(*slot),
            Self::WithOptions(_, options) => options.source,
            _ => None,
        }
    }

    /// Whether any message that settles with this one, itself or one merged into it or batched with
    /// it, has a source for which this holds.
    pub(crate) fn any_source(&self, holds: &mut dyn FnMut(SourceSlot) -> bool) -> bool {
        self.source().is_some_and(&mut *holds)
            || self.options().is_some_and(|options| {
                let merged = options.merged.iter();
                let members = options.members.iter();
                merged
                    .chain(members.map(|member| &member.envelope.obligation))
                    .any(|obligation| obligation.any_source(holds))
            })
    }

    #[inline]
    pub(crate) fn charge(&self) -> &Charge {
        match self {
            Self::Silent(charge)
            | Self::Answer(charge, _)
            | Self::Versioned(charge, _)
            | Self::Expiring(charge, _)
            | Self::OfSource(charge, _)
            | Self::WithOptions(charge, _) => charge,
        }
    }

    #[inline]
    pub(crate) fn charge_mut(&mut self) -> &mut Charge {
        match self {
            Self::Silent(charge)
            | Self::Answer(charge, _)
            | Self::Versioned(charge, _)
            | Self::Expiring(charge, _)
            | Self::OfSource(charge, _)
            | Self::WithOptions(charge, _) => charge,
        }
    }

    /// The receipt, if it still waits for the answer.
    #[inline]
    pub(crate) fn take_reply(&mut self) -> Option<Reply<T>> {
        match self {
            Self::Silent(_) | Self::Versioned(..) | Self::Expiring(..) | Self::OfSource(..) => None,
            Self::Answer(charge, _) => {
                let charge = charge.take();
                match std::mem::replace(self, Self::Silent(charge)) {
                    Self::Answer(_, reply) => Some(reply),
                    _ => None,
                }
            }
            Self::WithOptions(_, options) => options.reply.take(),
        }
    }

    /// Whether it has options in a box.
    #[inline]
    pub(crate) fn has_options(&self) -> bool {
        matches!(self, Self::WithOptions(..))
    }

    /// Whether its time may not have come yet, or may have passed.
    #[inline]
    pub(crate) fn may_be_untimely(&self) -> bool {
        matches!(self, Self::Expiring(..) | Self::WithOptions(..))
    }

    pub(crate) fn options(&self) -> Option<&Options<T>> {
        match self {
            Self::WithOptions(_, options) => Some(options),
            _ => None,
        }
    }

    /// Its place among the messages of its key; 0 where lanes do not sequence.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Versioned(_, version) => *version,
            Self::WithOptions(_, options) => options.version,
            _ => 0,
        }
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        match self {
            Self::Silent(charge) => *self = Self::Versioned(charge.take(), version),
            _ => self.options_mut().version = version,
        }
    }

    /// When it expires, in nanoseconds since the epoch.
    #[inline]
    pub(crate) fn expires_at(&self) -> Option<u64> {
        match self {
            Self::Expiring(_, at) => Some(*at),
            Self::WithOptions(_, options) => options.expires_at,
            _ => None,
        }
    }

    pub(crate) fn set_expires_at(&mut self, at: u64) {
        match self {
            Self::Silent(charge) => *self = Self::Expiring(charge.take(), at),
            _ => self.options_mut().expires_at = Some(at),
        }
    }

    /// The options of a message, made if it has none.
    pub(crate) fn options_mut(&mut self) -> &mut Options<T> {
        if !self.has_options() {
            let options = Options {
                version: self.version(),
                expires_at: self.expires_at(),
                source: self.source(),
                reply: self.take_reply(),
                ..Options::default()
            };
            *self = Self::WithOptions(self.charge_mut().take(), Box::new(options));
        }
        match self {
            Self::WithOptions(_, options) => options,
            _ => unreachable!("it has options now"),
        }
    }

    /// The obligations of the messages that were merged into this one, if any.
    pub(crate) fn take_merged(&mut self) -> Option<Vec<Obligation<T>>> {
        match self {
            Self::WithOptions(_, options) => Some(std::mem::take(&mut options.merged)),
            _ => None,
        }
        .filter(|merged| !merged.is_empty())
    }

    /// Whether no other message starts with this one.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        let members = self.options().map(|options| &options.members);
        members.is_none_or(Vec::is_empty)
    }

    /// The messages that were to start, or started, with this one.
    pub(crate) fn take_members(&mut self) -> Vec<Parked<T>> {
        match self {
            Self::WithOptions(_, options) => std::mem::take(&mut options.members),
            _ => Vec::new(),
        }
    }

    /// Takes over the obligation of an older message. The list is flat, however many were merged.
    pub(crate) fn absorb_older(&mut self, mut older: Self) {
        let mut merged = older.take_merged().unwrap_or_default();
        merged.push(older);
        let newer = &mut self.options_mut().merged;
        merged.append(newer);
        *newer = merged;
    }

    /// Takes over the obligation of a newer message, and the list is flat too.
    pub(crate) fn absorb_newer(&mut self, mut newer: Self) {
        let mut behind = newer.take_merged().unwrap_or_default();
        let merged = &mut self.options_mut().merged;
        merged.push(newer);
        merged.append(&mut behind);
    }

    /// Until when it must wait, if it must.
    pub(crate) fn not_before(&self, now: Instant) -> Option<Instant> {
        self.options()?.not_before.filter(|at| *at > now)
    }
}

/// A message in the channel.
pub(crate) struct Accepted<T: Types> {
    pub(crate) key: Option<T::Key>,
    /// The key's hash, computed once by the sender; 0 for a keyless message.
    pub(crate) hash: u64,
    pub(crate) message: T::Message,
    pub(crate) obligation: Obligation<T>,
}

/// A message that comes back to the router to be placed.
pub(crate) struct Returning<T: Types> {
    pub(crate) accepted: Accepted<T>,
    /// Its place in the order of acceptance. `None`: it gets a new one.
    pub(crate) accepted_at: Option<u64>,
}

impl<T: Types> Returning<T> {
    pub(crate) fn new(accepted: Accepted<T>) -> Self {
        Self {
            accepted,
            accepted_at: None,
        }
    }

    /// A message that keeps its place in the order of acceptance.
    pub(crate) fn accepted_at(accepted: Accepted<T>, at: u64) -> Self {
        Self {
            accepted,
            accepted_at: Some(at),
        }
    }
}

/// A message parked behind the head of its lane.
pub(crate) struct Parked<T: Types> {
    pub(crate) message: T::Message,
    pub(crate) envelope: Envelope<T>,
}

impl<T: Types> Item for Parked<T> {
    type Body = T::Message;

    fn accepted_at(&self) -> u64 {
        self.envelope.accepted_at
    }

    fn class(&self) -> u8 {
        self.envelope.obligation.charge().class
    }

    fn version(&self) -> u64 {
        self.envelope.obligation.version()
    }

    fn not_before(&self) -> Option<Instant> {
        self.envelope.obligation.options()?.not_before
    }

    fn expires_at(&self) -> Option<u64> {
        self.envelope.obligation.expires_at()
    }

    fn settles_with_survivor(&self) -> bool {
        self.envelope.obligation.source().is_some()
    }

    fn merged_len(&self) -> usize {
        self.envelope
            .obligation
            .options()
            .map_or(0, |options| options.merged.len())
    }

    fn absorb_older(&mut self, older: Self) -> T::Message {
        self.envelope
            .obligation
            .absorb_older(older.envelope.obligation);
        older.message
    }

    fn absorb_newer(&mut self, newer: Self) -> T::Message {
        self.envelope
            .obligation
            .absorb_newer(newer.envelope.obligation);
        newer.message
    }

    fn inherit_merged(&mut self, older: &mut Self) {
        if let Some(merged) = older.envelope.obligation.take_merged() {
            self.envelope.obligation.options_mut().merged = merged;
        }
    }

    fn set_members(&mut self, members: Vec<Self>) {
        self.envelope.obligation.options_mut().members = members;
    }
}
