//! What a source and the database say to each other in one round trip.

use std::collections::BTreeSet;

use keylane_inbox::StoredMessage;

use super::lane::LaneId;

/// A lane under a claim. The database takes nothing that is said about it under another token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Claimed {
    pub(super) lane: LaneId,
    pub(super) token: u64,
}

/// What names a message for good: a database that goes on from an older state of itself draws its
/// sequence again, for another message, and its nonce never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MessageRef {
    pub(super) sequence: u64,
    pub(super) nonce: u64,
}

/// Whether a worker is one where it asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum WorkerState {
    #[default]
    Alive,
    /// Its claims have run out.
    RunOut,
    /// It has joined in another history of the database: a standby was promoted, or another server
    /// has its place. What the worker knows may not be so here.
    Elsewhere { joined: String, now: String },
}

/// Most lanes that are claimed in one round trip.
pub(super) const MOST_CLAIMED: usize = 1_000;

/// What a source says, and what it wants.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrip {
    pub(super) worker: u64,
    /// Messages that are done, or letters already: they are removed.
    pub(super) done: Vec<(Claimed, MessageRef)>,
    /// How often messages were started.
    pub(super) attempts: Vec<(Claimed, MessageRef, u32)>,
    /// Lanes in which nothing waits.
    pub(super) leave: Vec<Leave>,
    pub(super) fetch: Vec<Fetch>,
    /// How many more lanes to claim, and how many messages of each to bring.
    pub(super) claim: u32,
    pub(super) window: u32,
    /// Claims only lanes that have been free since then, or for less, if the database has a time
    /// for it: see [`Answer::free_since`]. 0: whichever are free.
    pub(super) since: f64,
    /// How many bytes of payloads to bring in all.
    pub(super) bytes: u64,
    /// Whether to sum them up, and to bring one message however large it is. Otherwise the database
    /// may give an equal share of them to each message that is asked for.
    pub(super) sums: bool,
    /// How often there was something new before it began. The database is not told.
    pub(super) looks: u64,
}

impl RoundTrip {
    /// The lanes about which something is said, in their order.
    pub(super) fn said(&self) -> BTreeSet<Claimed> {
        let leave = self.leave.iter().map(|leave| leave.claimed);
        self.told().chain(leave).collect()
    }

    /// The lane of each done-mark and of each attempt.
    pub(super) fn told(&self) -> impl Iterator<Item = Claimed> {
        let tried = self.attempts.iter().map(|tried| tried.0);
        self.done.iter().map(|done| done.0).chain(tried)
    }

    /// How many messages it asks for at most.
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

/// A lane is left: it goes, if nothing was accepted since its key was at this point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leave {
    pub(super) claimed: Claimed,
    pub(super) last: u64,
    pub(super) place: Place,
}

/// Where a database has seen the rows of a lane and of its key, if it looks them up faster by that.
/// They may have moved: then a lane is not left, and is found at another place the next time.
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

/// What the database says.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Unless the worker is alive in this history of the database, nothing was done.
    pub(super) standing: WorkerState,
    /// The lanes about which something was said, and that are not ours any more.
    pub(super) lost: Vec<LaneId>,
    /// The lanes that were to be left, and are not gone.
    pub(super) stayed: Vec<LaneId>,
    /// The lanes that were asked for, and are ours, and those that were claimed.
    pub(super) lanes: Vec<Found>,
    pub(super) messages: Vec<Brought>,
    /// Since when the last one is free that was claimed, in seconds of the database's clock. Lanes
    /// are claimed in this order.
    pub(super) free_since: Option<f64>,
    /// The lane of each message that was asked for, and not brought because of the limit of bytes.
    pub(super) left_out: Vec<LaneId>,
}

/// A lane as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) claimed: Claimed,
    /// Changes with each accept of its key.
    pub(super) last: u64,
    /// Changes when a letter of its key is redriven.
    pub(super) redriven: u64,
    /// How many workers have died with it since it was last well.
    pub(super) crashes: u16,
    pub(super) place: Place,
    /// How many of its messages were brought, or left out.
    pub(super) messages: u32,
}

#[derive(Debug)]
pub(super) struct Brought {
    pub(super) lane: LaneId,
    pub(super) nonce: u64,
    pub(super) attempts: u32,
    pub(super) message: StoredMessage,
}
