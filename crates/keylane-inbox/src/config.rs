//! Every setting of an inbox, with its default.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::OpenError;
use crate::inbox::Inbox;
use crate::metrics;
use crate::store::{EmbeddedStore, Settings, SyncMode};

/// Opens an [`Inbox`]. The directory is required; everything else has a default.
///
/// | setting | default | at the limit |
/// | --- | --- | --- |
/// | [`name`](Self::name) | that of the directory | |
/// | [`sync`](Self::sync) | [`SyncMode::LosesNothing`] | |
/// | [`create`](Self::create) | yes | |
/// | [`wait_for_lock`](Self::wait_for_lock) | 100 ms | `open` returns [`OpenError::Locked`] |
/// | [`key_bytes`](Self::key_bytes) | 1 KiB | `accept` gives the message back |
/// | [`payload_bytes`](Self::payload_bytes) | 16 MiB | `accept` gives the message back |
/// | [`headers_bytes`](Self::headers_bytes) | 64 KiB | `accept` gives the message back |
/// | [`queue_bytes`](Self::queue_bytes) | 64 MiB | `accept` waits |
/// | [`group_messages`](Self::group_messages) | 4,096 | the next commit takes the rest |
/// | [`group_bytes`](Self::group_bytes) | 16 MiB | the next commit takes the rest |
/// | [`linger`](Self::linger) | none | |
/// | [`remember_for`](Self::remember_for) | 24 hours | older duplicates are stored |
/// | [`remember_most`](Self::remember_most) | 1,000,000 | older duplicates are stored |
/// | [`cache_bytes`](Self::cache_bytes) | 64 MiB | pages are read from the file again |
/// | [`compact_above`](Self::compact_above) | 8 MiB | the file is compacted |
/// | [`check_on_open`](Self::check_on_open) | yes | |
/// | [`fast_recovery`](Self::fast_recovery) | no | |
///
/// Limits without a setting: 256 headers, an id of 256 bytes, 65,536 messages or 1 GiB and one
/// message in a call, an error text of 4 KiB in a letter.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_inbox::{Inbox, SyncMode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path().join("clicks");
/// let clicks = Inbox::builder(directory)
///     .sync(SyncMode::LosesUpTo(Duration::from_millis(100)))
///     .payload_bytes(4 << 10)
///     .remember_for(Duration::from_secs(3_600))
///     .open()
///     .await?;
/// # clicks.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an inbox is opened by `open`"]
pub struct InboxBuilder {
    directory: PathBuf,
    settings: Settings,
}

impl Inbox {
    /// Opens the inbox in a directory, and creates both if they do not exist. Waits 100
    /// milliseconds for a directory that is open already; [`InboxBuilder::wait_for_lock`] changes
    /// that.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names the obstacle, and says what to do.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the inbox is opened and closed again in the background.
    pub async fn open(directory: impl Into<PathBuf>) -> Result<Self, OpenError> {
        Self::builder(directory).open().await
    }

    /// Opens an inbox with other settings.
    pub fn builder(directory: impl Into<PathBuf>) -> InboxBuilder {
        InboxBuilder {
            directory: directory.into(),
            settings: Settings::default(),
        }
    }
}

impl InboxBuilder {
    /// Sets the name in events, logs and metrics: that of the directory by default, which is the
    /// last part of its path. Give two inboxes of a process different names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Sets when `accept` answers, and what can be lost after the answer.
    pub fn sync(mut self, mode: SyncMode) -> Self {
        self.settings.sync = mode;
        self
    }

    /// Sets whether to create an inbox if there is none. With `false`, [`open`](Self::open) returns
    /// [`OpenError::Missing`] then.
    pub fn create(mut self, create: bool) -> Self {
        self.settings.create = create;
        self
    }

    /// Sets how long [`open`](Self::open) waits for a directory that another process, or another
    /// inbox of this process, has open: up to an hour, and zero for one look. Then it returns
    /// [`OpenError::Locked`].
    ///
    /// The default, 100 milliseconds, only covers a child process that is just starting and has
    /// inherited the lock for a moment. A process that replaces another one waits for as long as
    /// the old one needs to stop.
    pub fn wait_for_lock(mut self, time: Duration) -> Self {
        self.settings.wait_for_lock = time;
        self
    }

    /// Sets the most bytes of a key: up to 64 KiB. An empty key is always allowed.
    pub fn key_bytes(mut self, bytes: usize) -> Self {
        self.settings.key_bytes = bytes;
        self
    }

    /// Sets the most bytes of a payload: up to 1 GiB. A payload is in memory as a whole, and
    /// several times for a moment.
    pub fn payload_bytes(mut self, bytes: usize) -> Self {
        self.settings.payload_bytes = bytes;
        self
    }

    /// Sets the most bytes of all headers of a message together: up to 1 MiB; 0 for none.
    pub fn headers_bytes(mut self, bytes: usize) -> Self {
        self.settings.headers_bytes = bytes;
        self
    }

    /// Sets the most bytes that wait for a commit; each message counts at least 1 KiB. Further
    /// calls of `accept` wait. A message that is larger than this waits until it is alone.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.settings.queue_bytes = bytes;
        self
    }

    /// Sets the most messages that share a commit. A call with more messages has a commit of its
    /// own.
    pub fn group_messages(mut self, messages: usize) -> Self {
        self.settings.group_messages = messages;
        self
    }

    /// Sets the most bytes that share a commit. A call with more bytes has a commit of its own.
    pub fn group_bytes(mut self, bytes: usize) -> Self {
        self.settings.group_bytes = bytes;
        self
    }

    /// Sets how long a commit waits for more messages: up to a minute. By default it does not wait:
    /// messages that arrive during one commit share the next one. A longer wait saves syncs if
    /// calls are rare.
    pub fn linger(mut self, time: Duration) -> Self {
        self.settings.linger = time;
        self
    }

    /// Sets how long ids and versions are remembered to absorb duplicates. Zero absorbs only those
    /// within the same millisecond.
    pub fn remember_for(mut self, time: Duration) -> Self {
        self.settings.remember_for = time;
        self
    }

    /// Sets how many ids and versions are remembered; the oldest beyond that are forgotten. Each
    /// takes about twice its own bytes and 40 more.
    pub fn remember_most(mut self, most: u64) -> Self {
        self.settings.remember_most = most;
        self
    }

    /// Sets the memory for pages of the file.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.settings.cache_bytes = bytes;
        self
    }

    /// Sets how much longer the file may be than twice its live bytes. A file that stays longer is
    /// compacted, which blocks all other work until the live bytes are written. So a compaction
    /// waits a second for each 2 MiB of live bytes, and does not begin while a backlog is worked
    /// off.
    pub fn compact_above(mut self, bytes: u64) -> Self {
        self.settings.compact_above = bytes;
        self
    }

    /// Sets whether to verify the checksum of every page first. That reads the whole file once;
    /// after a crash the file is read anyway. Without it, bits that changed while the file was
    /// closed are detected later, or not at all.
    pub fn check_on_open(mut self, check: bool) -> Self {
        self.settings.check_on_open = check;
        self
    }

    /// Sets whether each commit takes two syncs instead of one. In return, opening after a crash
    /// need not read the whole file, if [`check_on_open`](Self::check_on_open) is off.
    ///
    /// With one sync, checksums tell a commit that a power failure interrupted from a whole one.
    /// They are not cryptographic: an attacker who chooses the payloads, knows the file and cuts
    /// the power at the right moment could forge a commit. With two syncs that is not possible.
    pub fn fast_recovery(mut self, fast: bool) -> Self {
        self.settings.fast_recovery = fast;
        self
    }

    /// Opens the inbox.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names the setting that does not fit, or the file that is an obstacle, and says
    /// what to do.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the inbox is opened and closed again in the background.
    pub async fn open(self) -> Result<Inbox, OpenError> {
        let store = EmbeddedStore::open(self.directory, self.settings).await?;
        let inbox = Inbox::embedded(store);
        metrics::publish(inbox.store());
        Ok(inbox)
    }
}
