//! The builder of a source.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylane_connector::ConfigError;
use keylane_leases::{LONGEST_TTL, Leases, SHORTEST_TTL};

use super::config::{Config, Settings, StreamStart, StreamTrim};
use super::record::StreamFields;
use super::source::StreamSource;
use super::strays::Strays;
use crate::names;
use crate::server::Redis;

/// Builds a [`StreamSource`]. See [`StreamSource::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct StreamBuilder {
    redis: Redis,
    settings: Settings,
}

impl StreamSource {
    /// Begins to build a source for a consumer group.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane_redis::{Redis, StreamSource, StreamTrim};
    ///
    /// # fn main() -> Result<(), keylane_redis::ConfigError> {
    /// let redis = Redis::at("redis://localhost:6379/0")?;
    /// let source = StreamSource::builder(&redis, "billing")
    ///     .stream("orders")
    ///     .key_field("user")
    ///     .trim(StreamTrim::Settled)
    ///     .build()?;
    /// # let _ = source;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(redis: &Redis, group: impl Into<Bytes>) -> StreamBuilder {
        StreamBuilder {
            redis: redis.clone(),
            settings: Settings {
                group: group.into(),
                streams: Vec::new(),
                partitioned: Vec::new(),
                name: std::process::id().to_string(),
                fields: StreamFields::new(),
                start_at: StreamStart::default(),
                ttl: Duration::from_secs(10),
                leases: None,
                read_ahead: 1_000,
                letters: None,
                deletes: false,
                trim: StreamTrim::default(),
                trim_every: Duration::from_secs(10),
                exact_starts: false,
            },
        }
    }
}

const LEASE: &str = "must be from 100 milliseconds to one day";

impl StreamBuilder {
    /// Reads this stream, in addition to others. It is created if it does not exist.
    pub fn stream(mut self, name: impl Into<Bytes>) -> Self {
        let name = name.into();
        if !self.settings.streams.contains(&name) {
            self.settings.streams.push(name);
        }
        self
    }

    /// Reads these streams, in addition to others.
    pub fn streams<N: Into<Bytes>>(self, names: impl IntoIterator<Item = N>) -> Self {
        names.into_iter().fold(self, Self::stream)
    }

    /// Reads a stream in partitions: this many streams `name:0`, `name:1` and so on. A producer
    /// adds an entry to the stream that [`partition_of`](crate::partition_of) returns for its key.
    ///
    /// All members of the group must set the same number. In a cluster each partition is in a slot
    /// of its own, unless the name has braces.
    ///
    /// If there is a stream or a list `name`, it is logged as a warning: nothing reads it.
    pub fn partitions(mut self, name: impl AsRef<str>, count: u32) -> Self {
        let name = name.as_ref();
        self.settings.partitioned.push(name.to_owned().into());
        self.streams((0..count).map(|number| format!("{name}:{number}")))
    }

    /// Sets the name of this process in `XINFO CONSUMERS`; the process id by default. A fencing
    /// token and the number of the take-over follow it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Sets which fields of an entry contain the parts of a message.
    pub fn fields(mut self, fields: StreamFields) -> Self {
        self.settings.fields = fields;
        self
    }

    /// Sets the field of the key; `key` by default. The first entry without it is logged as a
    /// warning, because its order is not kept.
    pub fn key_field(mut self, name: impl Into<Bytes>) -> Self {
        self.settings.fields = self.settings.fields.key(name);
        self
    }

    /// Sets the field of the payload; `payload` by default. The first entry without it is logged
    /// as a warning.
    pub fn payload_field(mut self, name: impl Into<Bytes>) -> Self {
        self.settings.fields = self.settings.fields.payload(name);
        self
    }

    /// Sets where a new group begins; [`StreamStart::Earliest`] by default.
    pub fn start_at(mut self, start_at: StreamStart) -> Self {
        self.settings.start_at = start_at;
        self
    }

    /// Sets how long a stream is owned without a renewal, from 100 milliseconds to a day; 10
    /// seconds by default. The lease is renewed after a third of that, or later if it is
    /// [long](keylane_leases::Leases::acquire). If a process crashes, or is paused for longer,
    /// another one takes its streams over after this time. All members of the group should set the
    /// same.
    ///
    /// It must outlast whatever blocks the runtime, such as a handler that computes without an
    /// await: no renewal is sent meanwhile, and the attempts of a member without a lease end.
    pub fn lease(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// Sets the leases under which streams are owned; [`RedisLeases`](crate::RedisLeases) in the
    /// same server by default. All members of the group must use leases of the same store.
    pub fn leases(mut self, leases: Leases) -> Self {
        self.settings.leases = Some(leases);
        self
    }

    /// Limits how many entries of each stream are read ahead; 1,000 by default. If entries are
    /// large, it reads fewer: about 16 MiB.
    pub fn read_ahead(mut self, entries: usize) -> Self {
        self.settings.read_ahead = entries;
        self
    }

    /// Writes dead letters to this stream, if the dispatcher is built with `OnExhausted::AtSource`.
    /// [`StreamSource`] describes the letters.
    pub fn dead_letters(mut self, stream: impl Into<Bytes>) -> Self {
        self.settings.letters = Some(stream.into());
        self
    }

    /// Deletes entries after all groups of the stream have acked them. A server without `XACKDEL`
    /// (before Redis 8.2, and Valkey) deletes them if there is no other group.
    pub fn delete_acked(mut self) -> Self {
        self.settings.deletes = true;
        self
    }

    /// Sets which entries are trimmed from the streams that this process owns;
    /// [`StreamTrim::Never`] by default.
    pub fn trim(mut self, trim: StreamTrim) -> Self {
        self.settings.trim = trim;
        self
    }

    /// Sets the interval of trimming; 10 seconds by default.
    pub fn trim_every(mut self, interval: Duration) -> Self {
        self.settings.trim_every = interval;
        self
    }

    /// Notes each attempt before it starts. Without it the first attempt at an entry that is handed
    /// over for the first time needs no note, so a crash during it does not count. With it each
    /// message costs a round trip, and waits up to 100 milliseconds for it.
    pub fn exact_starts(mut self) -> Self {
        self.settings.exact_starts = true;
        self
    }

    /// Checks the settings. The source connects when it is consumed, not before.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if a setting is missing, empty or zero, if a name has no clear slot
    /// in a cluster, or if a stream cannot be leased for the set time.
    pub fn build(self) -> Result<StreamSource, ConfigError> {
        let settings = &self.settings;
        names::check("group", &settings.group)?;
        let first = |name: &Bytes| Bytes::from([name, &b":0"[..]].concat());
        let mut partitioned = settings.partitioned.iter().map(first);
        if partitioned.any(|first| !settings.streams.contains(&first)) {
            return Err(ConfigError::zero("partitions"));
        }
        if settings.streams.is_empty() {
            return Err(ConfigError::new("stream", "or `partitions` must be set"));
        }
        for stream in &settings.streams {
            names::check("stream", stream)?;
        }
        if let Some(letters) = &settings.letters {
            names::check("dead_letters", letters)?;
        }
        if settings.name.is_empty() {
            return Err(ConfigError::new("name", crate::names::EMPTY));
        }
        let zeros = [
            ("read_ahead", settings.read_ahead == 0),
            ("trim_every", settings.trim_every.is_zero()),
        ];
        if let Some((what, _)) = zeros.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(ConfigError::zero(what));
        }
        if !(SHORTEST_TTL..=LONGEST_TTL).contains(&settings.ttl) {
            return Err(ConfigError::new("lease", LEASE));
        }
        Ok(StreamSource::new(Arc::new(Config {
            strays: Strays::new(&settings.partitioned, &settings.streams),
            redis: self.redis,
            settings: self.settings,
        })))
    }
}

impl fmt::Debug for StreamBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamBuilder")
            .field("redis", &self.redis)
            .field("settings", &self.settings)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_partitions_is_refused_beside_others_too() {
        let redis = Redis::at("redis://127.0.0.1/").unwrap();
        let builder = || StreamSource::builder(&redis, "billing");
        let zero = Some(ConfigError::zero("partitions"));
        assert_eq!(builder().partitions("orders", 0).build().err(), zero);
        let beside = builder().stream("payments").partitions("orders", 0);
        assert_eq!(beside.build().err(), zero);
        assert!(builder().partitions("orders", 1).build().is_ok());
    }

    #[test]
    fn a_stream_that_cannot_be_leased_is_refused() {
        let redis = Redis::at("redis://localhost").unwrap();
        let build = |ttl| {
            let builder = StreamSource::builder(&redis, "billing").stream("orders");
            builder.lease(ttl).build().map(drop)
        };
        let times = [Duration::ZERO, Duration::from_millis(99), Duration::MAX];
        for ttl in times {
            assert_eq!(build(ttl), Err(ConfigError::new("lease", LEASE)), "{ttl:?}");
        }
        for ttl in [SHORTEST_TTL, LONGEST_TTL] {
            assert_eq!(build(ttl), Ok(()), "{ttl:?}");
        }
    }
}
