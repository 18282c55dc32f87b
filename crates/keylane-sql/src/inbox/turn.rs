//! The request of a source and the answer of the database in one round trip.

use std::collections::BTreeSet;

use keylane_inbox::StoredMessage;

use super::lane::LaneId;

/// A lane under a claim. The database ignores requests about it under another token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Claimed {
    pub(super) lane: LaneId,
    pub(super) token: u64,
}

/// The permanent name of a message. A database that goes on from an older state of itself draws its
/// sequence again for another message, but never its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MessageRef {
    pub(super) sequence: u64,
    pub(super) nonce: u64,
}

/// The state of a worker in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum WorkerState {
    #[default]
    Alive,
    /// Its claims have run out.
    RunOut,
    /// It joined in another history of the database: a standby was promoted, or another server
    /// replaced it. What the worker knows may not be true here.
    Elsewhere { joined: String, now: String },
}

/// The most lanes that one round trip claims.
pub(super) const MOST_CLAIMED: usize = 1_000;

/// A request of a source: its reports and its wishes.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrip {
    pub(super) worker: u64,
    /// Messages that are done, or are letters already: the database removes them.
    pub(super) done: Vec<(Claimed, MessageRef)>,
    /// How often messages were started.
    pub(super) attempts: Vec<(Claimed, MessageRef, u32)>,
    /// Lanes in which no message waits.
    pub(super) leave: Vec<Leave>,
    pub(super) fetch: Vec<Fetch>,
    /// How many more lanes to claim, and how many messages of each to bring.
    pub(super) claim: u32,
    pub(super) window: u32,
    /// Claims only lanes that became free at this time or later, if the database keeps such a time:
    /// see [`Answer::free_since`]. 0: any free lane.
    pub(super) since: f64,
    /// How many bytes of payloads to bring in total.
    pub(super) bytes: u64,
    /// Whether to sum the bytes up, and to bring one message however large it is. Otherwise the
    /// database may give each requested message an equal share of them.
    pub(super) sums: bool,
    /// The value of the look counter when the turn began. The database does not get it.
    pub(super) looks: u64,
}

impl RoundTrip {
    /// Returns the lanes that the request mentions, in their order.
    pub(super) fn said(&self) -> BTreeSet<Claimed> {
        let leave = self.leave.iter().map(|leave| leave.claimed);
        self.told().chain(leave).collect()
    }

    /// Returns the lane of each done-mark and of each attempt.
    pub(super) fn told(&self) -> impl Iterator<Item = Claimed> {
        let tried = self.attempts.iter().map(|tried| tried.0);
        self.done.iter().map(|done| done.0).chain(tried)
    }

    /// Returns how many messages it asks for at most.
    pub(super) fn asked(&self) -> usize {
        let fetched: usize = self.fetch.iter().map(|fetch| fetch.count as usize).sum();
        fetched + self.claim as usize * self.window as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.done.is_empty()
            && self.attempts.is_empty()
            && self.leave.is_empty()
            && self.fetch.is_empty()
            && self.claim == 0
    }
}

/// Leaves a lane: the lane is removed unless a message was accepted after its key was at this
/// point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leave {
    pub(super) claimed: Claimed,
    pub(super) last: u64,
    pub(super) place: Place,
}

/// Where the database found the rows of a lane and of its key, if that makes the next lookup
/// faster. The rows may have moved: then the lane is not left, and the next turn finds it at
/// another place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) of_lane: u64,
    pub(super) of_key: u64,
}

/// The next messages of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) claimed: Claimed,
    pub(super) after: u64,
    pub(super) count: u32,
}

/// The answer of the database.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The state of the worker. Unless it is alive in this history of the database, nothing was
    /// done.
    pub(super) standing: WorkerState,
    /// The lanes that the request mentions and that are no longer ours.
    pub(super) lost: Vec<LaneId>,
    /// The lanes that were to be left, and still exist.
    pub(super) stayed: Vec<LaneId>,
    /// The requested lanes that are ours, and the lanes that were claimed.
    pub(super) lanes: Vec<Found>,
    pub(super) messages: Vec<Brought>,
    /// Since when the last claimed lane is free, in seconds of the database's clock. Lanes are
    /// claimed in this order.
    pub(super) free_since: Option<f64>,
    /// The lane of each requested message that the limit of bytes left out.
    pub(super) left_out: Vec<LaneId>,
}

/// The state of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) claimed: Claimed,
    /// Changes with each accept of its key.
    pub(super) last: u64,
    /// Changes when a letter of its key is redriven.
    pub(super) redriven: u64,
    /// How many workers have died with it since it was last healthy.
    pub(super) crashes: u16,
    pub(super) place: Place,
    /// How many of its messages were brought or left out.
    pub(super) messages: u32,
}

#[derive(Debug)]
pub(super) struct Brought {
    pub(super) lane: LaneId,
    pub(super) nonce: u64,
    pub(super) attempts: u32,
    pub(super) message: StoredMessage,
}

impl Brought {
    pub(super) fn name(&self) -> MessageRef {
        MessageRef {
            sequence: self.message.sequence,
            nonce: self.nonce,
        }
    }
}
