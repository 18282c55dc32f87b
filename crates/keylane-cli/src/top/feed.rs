//! What the feed of a console says, as far as the terminal shows it. A field that is missing is
//! zero: an older or a newer service may say less.

use serde::Deserialize;

/// An event of a feed.
#[derive(Deserialize, Debug, Clone)]
pub(super) struct Frame<B> {
    /// Names the process.
    pub(super) life: String,
    #[serde(default)]
    pub(super) points: Vec<Point>,
    pub(super) body: B,
}

/// The counters of a look: accepted, done, failed attempts, for each dispatcher.
#[derive(Deserialize, Debug, Clone)]
pub(super) struct Point {
    pub(super) up_ms: u64,
    pub(super) counts: Vec<[u64; 3]>,
}

#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct Overview {
    pub(super) up_ms: u64,
    pub(super) dispatchers: Vec<Summary>,
    pub(super) intakes: Vec<Source>,
    pub(super) letters: Vec<Store>,
    pub(super) leaders: Vec<Election>,
}

/// A dispatcher.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct Summary {
    pub(super) name: String,
    pub(super) closed: bool,
    pub(super) accepted: u64,
    pub(super) done: u64,
    pub(super) failures: u64,
    pub(super) waiting: u64,
    pub(super) dead_lettered: u64,
    pub(super) discarded: u64,
    pub(super) expired: u64,
    pub(super) capacity_left: u64,
    pub(super) concurrency_limit: u64,
    pub(super) full_lanes: u64,
    pub(super) lanes: u64,
    pub(super) reasons: Reasons,
    pub(super) times: Times,
}

/// The lanes by what they wait for.
#[derive(Deserialize, Debug, Clone, Copy, Default)]
#[serde(default)]
pub(super) struct Reasons {
    pub(super) in_flight: u64,
    pub(super) ready: u64,
    pub(super) backing_off: u64,
    pub(super) halted: u64,
    pub(super) paused: u64,
    pub(super) for_rate: u64,
    pub(super) for_time: u64,
    pub(super) for_batch: u64,
    pub(super) for_lease: u64,
    pub(super) for_store: u64,
    pub(super) for_versions: u64,
    pub(super) other: u64,
}

#[derive(Deserialize, Debug, Clone, Copy, Default)]
#[serde(default)]
pub(super) struct Times {
    pub(super) wait: Option<Quantiles>,
    pub(super) attempt: Option<Quantiles>,
}

#[derive(Deserialize, Debug, Clone, Copy, Default)]
#[serde(default)]
pub(super) struct Quantiles {
    pub(super) p50_us: u64,
    pub(super) p90_us: u64,
    pub(super) p99_us: u64,
    pub(super) most_us: u64,
}

/// An intake.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) received: u64,
    pub(super) acked: u64,
    pub(super) unconfirmed: u64,
    pub(super) dead_lettered: u64,
    pub(super) nacked: u64,
    pub(super) held: u64,
    pub(super) deferred: u64,
    pub(super) restarts: u64,
    pub(super) hold: Option<Hold>,
    pub(super) last_error: Option<String>,
    pub(super) failed_parts: Vec<FailedPart>,
    pub(super) parts: Vec<Part>,
    pub(super) other_parts: u64,
}

/// For how long the messages of a source are held.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct Hold {
    pub(super) lasts_ms: u64,
    pub(super) left_ms: u64,
}

#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct FailedPart {
    pub(super) part: String,
    pub(super) why: String,
    pub(super) times: u64,
}

#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) frontier: Option<String>,
    pub(super) lag: Option<u64>,
    pub(super) held: u64,
    pub(super) is_paused: bool,
    pub(super) trouble: Option<String>,
    pub(super) held_by: Option<LaneName>,
}

/// A lane of any dispatcher.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct LaneName {
    pub(super) dispatcher: String,
    pub(super) key: String,
    pub(super) key_chars: usize,
}

/// A store of letters, and the job over it.
#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct Store {
    pub(super) name: String,
    pub(super) job: Option<Job>,
}

#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct Job {
    pub(super) action: String,
    pub(super) seen: u64,
    pub(super) done: u64,
    pub(super) state: String,
    pub(super) why: String,
}

#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct Election {
    pub(super) name: String,
    pub(super) leader: Option<String>,
    pub(super) is_leaving: bool,
}

#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct Lanes {
    pub(super) dispatcher: String,
    /// The number of all lanes.
    pub(super) all: u64,
    pub(super) lanes: Vec<Lane>,
}

#[derive(Deserialize, Debug, Clone, Default)]
#[serde(default)]
pub(super) struct Lane {
    pub(super) id: String,
    pub(super) key: String,
    pub(super) key_chars: usize,
    pub(super) depth: u64,
    pub(super) age_ms: u64,
    pub(super) busy_ms: u64,
    pub(super) full: bool,
    pub(super) state: String,
    pub(super) ends: String,
    pub(super) attempt: Option<u32>,
    pub(super) due_ms: Option<u64>,
    pub(super) ran_ms: Option<u64>,
    pub(super) why: String,
}
