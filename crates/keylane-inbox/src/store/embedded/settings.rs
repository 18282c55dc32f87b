//! The settings of the embedded store.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::OpenError;
use crate::limits::Limits;

/// When a call is answered. The variants say what can be lost after the answer.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// Answers after the disk has confirmed the write. The default.
    #[default]
    LosesNothing,
    /// Answers at once, and writes at least this often. When the process dies, or the power or the
    /// disk fails, the answers of this last period are lost: messages that were accepted, and
    /// done-marks, whose messages are then handled again. Everything older is there, and complete.
    LosesUpTo(Duration),
}

/// Every setting of an [`EmbeddedStore`](super::EmbeddedStore), with its default.
///
/// [`Inbox::builder`](crate::Inbox::builder) sets them by name.
#[non_exhaustive]
#[derive(Clone)]
pub struct Settings {
    /// The name in events, logs and metrics. Default: that of the directory.
    pub name: Option<String>,
    /// When a call is answered.
    pub sync: SyncMode,
    /// Create the inbox if there is none. Default: yes.
    pub create: bool,
    /// How long to wait for the directory while another process, or another inbox of this one, has
    /// it open. Default: 100 milliseconds.
    pub wait_for_lock: Duration,
    /// Verify the checksum of every page when the inbox is opened. Default: yes.
    pub check_on_open: bool,
    /// Two syncs for each commit; in return, opening after a crash does not read the whole file.
    /// Default: no.
    pub fast_recovery: bool,
    /// Memory for pages of the database, in bytes. Default: 64 MiB.
    pub cache_bytes: usize,
    /// Most bytes of a key. Default: 1 KiB; at most 64 KiB.
    pub key_bytes: usize,
    /// Most bytes of a payload. Default: 16 MiB; at most 1 GiB.
    pub payload_bytes: usize,
    /// Most bytes of the headers of a message. Default: 64 KiB; at most 1 MiB.
    pub headers_bytes: usize,
    /// Most messages in one commit; a call with more has a commit of its own. Default: 4,096.
    pub group_messages: usize,
    /// Most bytes in one commit; a call with more has a commit of its own. Default: 16 MiB.
    pub group_bytes: usize,
    /// How long a commit waits for more messages. Default: not at all.
    pub linger: Duration,
    /// Bytes that may wait for the writer, each message counted with at least 1 KiB; further calls
    /// wait. Default: 64 MiB.
    pub queue_bytes: usize,
    /// How long ids and versions are remembered. Default: 24 hours.
    pub remember_for: Duration,
    /// How many ids and versions are remembered. Default: 1,000,000.
    pub remember_most: u64,
    /// By how much the file may be longer than twice its live bytes, in bytes. Default: 8 MiB.
    pub compact_above: u64,
    /// How long it must have been longer, for each 2 MiB of live bytes, before it is compacted,
    /// which blocks all other reads and writes. Default: 1 second.
    pub compact_after: Duration,
    /// The wall clock. Default: that of the system.
    pub clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Default for Settings {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            name: None,
            sync: SyncMode::LosesNothing,
            create: true,
            wait_for_lock: Duration::from_millis(100),
            check_on_open: true,
            fast_recovery: false,
            cache_bytes: 64 << 20,
            key_bytes: limits.key_bytes,
            payload_bytes: limits.payload_bytes,
            headers_bytes: limits.headers_bytes,
            group_messages: 4_096,
            group_bytes: 16 << 20,
            linger: Duration::ZERO,
            queue_bytes: 64 << 20,
            remember_for: Duration::from_secs(24 * 60 * 60),
            remember_most: 1_000_000,
            compact_above: 8 << 20,
            compact_after: Duration::from_secs(1),
            clock: Arc::new(SystemTime::now),
        }
    }
}

impl Settings {
    /// The bytes of a unit of room in the queue.
    pub(super) const ROOM_BYTES: usize = 1 << 10;
    /// Tokio's semaphore cannot give more at once.
    const MOST_QUEUE_BYTES: usize = 1 << 40;
    /// A longer wait is not a group any more but a stop.
    const MOST_LINGER: Duration = Duration::from_secs(60);
    /// It takes a thread that long.
    const MOST_WAIT_FOR_LOCK: Duration = Duration::from_secs(60 * 60);

    pub(super) fn check(&self) -> Result<(), OpenError> {
        let is_never = self.sync == SyncMode::LosesUpTo(Duration::ZERO);
        for (setting, is_zero) in [
            ("sync", is_never),
            ("cache_bytes", self.cache_bytes == 0),
            ("key_bytes", self.key_bytes == 0),
            ("payload_bytes", self.payload_bytes == 0),
            ("group_messages", self.group_messages == 0),
            ("group_bytes", self.group_bytes == 0),
            ("queue_bytes", self.queue_bytes == 0),
        ] {
            if is_zero {
                return Err(OpenError::Zero(setting));
            }
        }
        let millis = |time: Duration| usize::try_from(time.as_millis()).unwrap_or(usize::MAX);
        for (setting, value, limit) in [
            ("key_bytes", self.key_bytes, Limits::MOST_KEY_BYTES),
            (
                "payload_bytes",
                self.payload_bytes,
                Limits::MOST_PAYLOAD_BYTES,
            ),
            (
                "headers_bytes",
                self.headers_bytes,
                Limits::MOST_HEADERS_BYTES,
            ),
            ("queue_bytes", self.queue_bytes, Self::MOST_QUEUE_BYTES),
            (
                "linger (in ms)",
                millis(self.linger),
                millis(Self::MOST_LINGER),
            ),
            (
                "wait_for_lock (in ms)",
                millis(self.wait_for_lock),
                millis(Self::MOST_WAIT_FOR_LOCK),
            ),
        ] {
            if value > limit {
                return Err(OpenError::TooLarge { setting, limit });
            }
        }
        Ok(())
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            key_bytes: self.key_bytes,
            payload_bytes: self.payload_bytes,
            headers_bytes: self.headers_bytes,
        }
    }

    /// Returns the units of room in the queue.
    pub(super) fn room(&self) -> u32 {
        let room = self.queue_bytes.div_ceil(Self::ROOM_BYTES);
        u32::try_from(room).expect("the queue's bytes were checked to be below 2^40")
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("sync", &self.sync)
            .field("cache_bytes", &self.cache_bytes)
            .field("payload_bytes", &self.payload_bytes)
            .field("group_messages", &self.group_messages)
            .field("group_bytes", &self.group_bytes)
            .finish_non_exhaustive()
    }
}
