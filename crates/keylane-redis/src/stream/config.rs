//! The settings of a source.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use keylane_leases::Leases;

use super::record::StreamFields;
use super::strays::Strays;
use crate::server::Redis;

/// Where a new group begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamStart {
    /// At the first entry of the stream: no entry is left out.
    #[default]
    Earliest,
    /// At the end of the stream: only entries from now on.
    Latest,
}

/// Which entries are trimmed from a stream while it is consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamTrim {
    /// None.
    #[default]
    Never,
    /// Entries that all groups of the stream have read and acked. A group that lags, or that has no
    /// reader any more, keeps all entries that it has not read: remove it with `XGROUP DESTROY`.
    Settled,
}

/// The settings of a builder, checked.
pub(super) struct Config {
    pub(super) redis: Redis,
    pub(super) settings: Settings,
    pub(super) strays: Strays,
}

impl Config {
    /// Returns the name of the source for events, logs and metrics.
    pub(super) fn name(&self) -> String {
        let settings = &self.settings;
        let names = settings.streams.iter().take(3);
        let names: Vec<_> = names.map(|name| String::from_utf8_lossy(name)).collect();
        let more = match settings.streams.len() > 3 {
            true => ", …",
            false => "",
        };
        let group = String::from_utf8_lossy(&settings.group);
        format!("redis streams {}{more} as {group}", names.join(", "))
    }
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) group: Bytes,
    pub(super) streams: Vec<Bytes>,
    /// The names of which the partitions are among the streams.
    pub(super) partitioned: Vec<Bytes>,
    pub(super) name: String,
    pub(super) fields: StreamFields,
    pub(super) start_at: StreamStart,
    pub(super) ttl: Duration,
    pub(super) leases: Option<Leases>,
    pub(super) read_ahead: usize,
    pub(super) letters: Option<Bytes>,
    pub(super) deletes: bool,
    pub(super) trim: StreamTrim,
    pub(super) trim_every: Duration,
    pub(super) exact_starts: bool,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("group", &self.group)
            .field("streams", &self.streams)
            .field("name", &self.name)
            .field("start_at", &self.start_at)
            .field("lease", &self.ttl)
            .field("read_ahead", &self.read_ahead)
            .field("dead_letters", &self.letters)
            .field("delete_acked", &self.deletes)
            .field("trim", &self.trim)
            .field("exact_starts", &self.exact_starts)
            .finish_non_exhaustive()
    }
}
