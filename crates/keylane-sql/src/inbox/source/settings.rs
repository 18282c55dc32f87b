//! How a source holds lanes.

use std::time::Duration;

/// How a source of an inbox claims keys, and how much of them is in memory.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_sql::SourceSettings;
///
/// let settings = SourceSettings::new().keys(256).ttl(Duration::from_secs(10));
/// # let _ = settings;
/// ```
#[derive(Clone, Debug)]
pub struct SourceSettings {
    pub(super) keys: usize,
    pub(super) window: usize,
    pub(super) bytes: usize,
    pub(super) ttl: Duration,
    pub(super) poll: Duration,
    pub(super) exact_starts: bool,
    pub(super) name: String,
}

impl Default for SourceSettings {
    fn default() -> Self {
        Self::new()
    }
}

impl SourceSettings {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            keys: 2_048,
            window: 256,
            bytes: 64 << 20,
            ttl: Duration::from_secs(15),
            poll: Duration::from_secs(1),
            exact_starts: false,
            name: format!("process {}", std::process::id()),
        }
    }

    /// Most keys that are claimed at a time; 2,048 by default, and at least 1. The others are left
    /// to other processes: set it to what the handlers of this one can work on at a time, and a few
    /// more.
    #[must_use]
    pub fn keys(mut self, most: usize) -> Self {
        self.keys = most.max(1);
        self
    }

    /// Most messages of one key that are handed over and not settled; 256 by default, and at least
    /// 1. Set it below the `lane_capacity` of the dispatcher.
    #[must_use]
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages.clamp(1, 65_536);
        self
    }

    /// Most bytes of payloads that are handed over and not settled; 64 MiB by default. One message
    /// is handed over however large it is.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes.max(1);
        self
    }

    /// How long the claims of this process last unless they are renewed, and they are three times
    /// as often; 15 seconds by default, and at least 1. When a process dies, others have its keys
    /// this much later and up to two seconds more.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.max(Duration::from_secs(1));
        self
    }

    /// How long the source waits at most before it looks for messages of which it was told nothing;
    /// one second by default. PostgreSQL tells of new messages. MySQL does not: there the source
    /// looks again after 5 milliseconds, and after twice as long each time, up to this.
    #[must_use]
    pub fn poll(mut self, interval: Duration) -> Self {
        self.poll = interval.max(Duration::from_millis(1));
        self
    }

    /// Whether each first attempt is noted in the database before it starts, too; not by default.
    ///
    /// Further attempts always are. By default the first attempt costs no round trip of its own: a
    /// worker that dies leaves behind that it died with this key, and not with which message. From
    /// then on the next messages of the key are handed over one at a time, and each is noted before
    /// it starts. So a message that kills its worker each time is started once more than it has
    /// attempts. With this setting it is started exactly as often, and every message waits 100
    /// milliseconds for its note.
    #[must_use]
    pub fn exact_starts(mut self, exact: bool) -> Self {
        self.exact_starts = exact;
        self
    }

    /// What this process is called in the table of workers, for those who look at it. Its first 64
    /// characters are kept, without control characters.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        let kept = name.chars().filter(|character| !character.is_control());
        self.name = kept.take(64).collect();
        self
    }
}
