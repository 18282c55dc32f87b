//! The settings of a source.

use std::time::Duration;

/// The settings of a source: how it claims keys, and how much of them is in memory.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_sql::SourceSettings;
///
/// let settings = SourceSettings::new().keys(256).lease(Duration::from_secs(10));
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
    /// Returns the defaults.
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

    /// Sets the most keys that are claimed at a time; 2,048 by default, and at least 1. Other
    /// processes can claim the remaining keys: set it to a few more than the handlers of this
    /// process can work on at a time.
    #[must_use]
    pub fn keys(mut self, most: usize) -> Self {
        self.keys = most.max(1);
        self
    }

    /// Sets the most messages of one key that are handed over and not settled; 256 by default, and
    /// at least 1. Set it below the `lane_capacity` of the dispatcher.
    #[must_use]
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages.clamp(1, 65_536);
        self
    }

    /// Sets the most bytes of payloads that are handed over and not settled; 64 MiB by default. One
    /// message is handed over even if it is larger.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes.max(1);
        self
    }

    /// Sets how long the claims of this process last without a renewal; 15 seconds by default, and
    /// at least 1. They are renewed three times as often. When a process dies, other processes get
    /// its keys after this time and up to two seconds more.
    ///
    /// It must outlast whatever blocks the runtime, such as a handler that computes: a task renews
    /// the claims. If they run out, attempts under way are dropped, and their messages are handled
    /// again. A standby that was behind and is promoted may lack the last claims: two processes may
    /// work on a key until this one's next call, and the numbers of claims of the two servers have
    /// no order.
    #[must_use]
    pub fn lease(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.max(Duration::from_secs(1));
        self
    }

    /// Sets how long the source waits at most before it looks for messages without a notification;
    /// one second by default. PostgreSQL announces new messages. MySQL does not: there the source
    /// looks again after 5 milliseconds, and after twice as long each time, up to this limit.
    #[must_use]
    pub fn poll(mut self, interval: Duration) -> Self {
        self.poll = interval.max(Duration::from_millis(1));
        self
    }

    /// Notes each first attempt in the database before it starts, too; not by default.
    ///
    /// Further attempts are always noted. By default the first attempt costs no round trip of its
    /// own: when a worker dies, the database knows the key but not the message. From then on the
    /// next messages of the key are handed over one at a time, and each is noted before it starts.
    /// So a message that kills its worker each time starts once more than it has attempts. With
    /// this setting it starts exactly as often, and every message waits 100 milliseconds for its
    /// note.
    #[must_use]
    pub fn exact_starts(mut self) -> Self {
        self.exact_starts = true;
        self
    }

    /// Sets the name of this process in the table of workers, for people who read it. Its first 64
    /// characters are kept, without control characters.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        let kept = name.chars().filter(|character| !character.is_control());
        self.name = kept.take(64).collect();
        self
    }
}
