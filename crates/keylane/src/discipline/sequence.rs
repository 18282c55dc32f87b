//! Messages with versions, in the order of the versions.

use std::fmt;
use std::time::Duration;

use keylane_lanes::{Mode, OnGap, Start};
use keylane_rt::Arc;
use keylane_source::VersionStore;

use super::versions::Versions;
use crate::error::BuildError;

/// Keys that are remembered unless set otherwise.
const KEYS: usize = 1 << 20;

/// How long a key is remembered unless set otherwise.
const IDLE: Duration = Duration::from_secs(3600);

/// How long a version is waited for unless set otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// A discipline that handles the messages of a key in the order of their versions, as TCP does with
/// its segments.
///
/// The next version starts; an early version is parked until its turn. A version that came before
/// settles as a duplicate, and its receipt resolves with
/// [`Duplicate`](crate::error::ReceiptError::Duplicate). This corrects a source that delivers
/// twice, or out of order.
///
/// Set where a key starts, with [`from`](Self::from) or a [`store`](Self::store), if its first
/// messages can come out of order. Otherwise the first version that comes is the start, and an
/// older version is a duplicate that was never handled. Messages without a key have no order,
/// whatever their versions.
///
/// | setting | default |
/// | --- | --- |
/// | [`from`](Self::from), [`store`](Self::store) | the first version that comes |
/// | [`gap_timeout`](Self::gap_timeout) | 30 seconds, then the key halts |
/// | [`early`](Self::early) | 1,024 messages of a key, then as if the gap had timed out |
/// | [`remember`](Self::remember) | 1,048,576 keys, an hour |
///
/// A key remembers the last version that was handled or given up on, also after its lane is gone. A
/// store records a version after its handler succeeded, never before. A crash in between repeats a
/// version; it never skips one. A version that was given up on, or removed by an operator, is
/// recorded with the next one that succeeds, or when the key has nothing else to do. After a crash
/// in between, a new process waits for it as for any missing version.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane::Dispatcher;
/// use keylane::discipline::{OnGap, Sequence};
///
/// struct Change { account: u64, version: u64 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ledger = Dispatcher::builder(|change: &Change| change.account)
///     .sequence(
///         Sequence::contiguous(|change: &Change| change.version)
///             .from(1)
///             .gap_timeout(Duration::from_secs(5), OnGap::Halt),
///     )
///     .spawn(|change: Change| async move { Ok::<_, std::io::Error>(change.version) })?;
///
/// for version in [2, 1, 2, 3] {
///     ledger.send(Change { account: 7, version }).await?;
/// }
/// let report = ledger.drain().await;
/// assert_eq!((report.done, report.duplicates), (3, 1));
/// # Ok(())
/// # }
/// ```
pub struct Sequence<K, M> {
    version: Version<M>,
    sequencing: Sequencing<K>,
    store: Option<Arc<dyn VersionStore<K>>>,
    keys: usize,
    idle: Duration,
}

pub(crate) type Version<M> = Box<dyn Fn(&M) -> u64 + Send + Sync>;

/// What the engine needs to know of it.
pub(crate) struct Sequencing<K> {
    pub(crate) mode: Mode,
    pub(crate) start: Start,
    pub(crate) early: usize,
    pub(crate) patience: Duration,
    pub(crate) on_gap: OnGap,
    pub(crate) versions: Versions<K>,
}

impl<K, M> Sequence<K, M> {
    /// Returns a sequence in which each version is one more than the one before it.
    ///
    /// `version` is called in the task that sends a message: once, and again while its lane is
    /// full. A sender of the version that a full lane waits for does not wait for room.
    pub fn contiguous(version: impl Fn(&M) -> u64 + Send + Sync + 'static) -> Self {
        Self::new(Mode::Contiguous, Box::new(version))
    }

    /// Returns a sequence in which any version newer than the last one starts; an older or equal
    /// version is a duplicate. For states of which only the newest matters. No version is early, so
    /// there are no gaps.
    pub fn monotonic(version: impl Fn(&M) -> u64 + Send + Sync + 'static) -> Self {
        Self::new(Mode::Monotonic, Box::new(version))
    }

    fn new(mode: Mode, version: Version<M>) -> Self {
        Self {
            version,
            sequencing: Sequencing {
                mode,
                start: Start::FirstSeen,
                early: 1_024,
                patience: PATIENCE,
                on_gap: OnGap::Halt,
                versions: Versions::none(),
            },
            store: None,
            keys: KEYS,
            idle: IDLE,
        }
    }

    /// Sets the version with which a key starts that is not remembered. The default is the first
    /// version that comes.
    ///
    /// Without a [`store`](Self::store) a key that was [forgotten](Self::remember) starts here
    /// again, and waits for this version. Set a store, or remember keys for longer than any key is
    /// silent.
    #[must_use]
    pub fn from(mut self, version: u64) -> Self {
        self.sequencing.start = Start::At(version);
        self
    }

    /// Sets how long a key waits for a missing version, and what happens then.
    #[must_use]
    pub fn gap_timeout(mut self, limit: Duration, then: OnGap) -> Self {
        self.sequencing.patience = limit;
        self.sequencing.on_gap = then;
        self
    }

    /// Sets the maximum number of messages of one key that wait for a missing version. One more has
    /// the effect of the time-out at once.
    #[must_use]
    pub fn early(mut self, messages: usize) -> Self {
        self.sequencing.early = messages;
        self
    }

    /// Sets how many keys are remembered in memory, and for how long after their last message.
    ///
    /// A key is forgotten between `idle` and twice `idle` after its last message, earlier if more
    /// than half of `keys` other keys had messages since; never while it has a lane. A forgotten
    /// key starts anew, or is looked up in the [`store`](Self::store).
    #[must_use]
    pub fn remember(mut self, keys: usize, idle: Duration) -> Self {
        self.keys = keys;
        self.idle = idle;
        self
    }

    /// Sets the store that keeps the last handled version of each key, so that it outlives the
    /// process.
    ///
    /// A key that is not remembered in memory waits until the store has answered. A version is
    /// recorded after its handler succeeded and before the message settles; if that fails, the
    /// attempt has failed ([`Failure::NotRecorded`](crate::error::Failure::NotRecorded)): set a
    /// [`retry`](crate::Builder::retry), and the handler runs for it once more. Recording is part
    /// of the attempt, and [`attempt_timeout`](crate::Builder::attempt_timeout) counts it. Versions
    /// that were given up on are recorded when the key has nothing else to do, and it waits for
    /// that.
    #[must_use]
    pub fn store(mut self, store: impl VersionStore<K> + 'static) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    pub(crate) fn on_gap(&self) -> OnGap {
        self.sequencing.on_gap
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.sequencing.early == 0 {
            return Err(BuildError::Zero("Sequence::early"));
        }
        if self.sequencing.patience.is_zero() {
            return Err(BuildError::Zero("Sequence::gap_timeout"));
        }
        if self.keys == 0 {
            return Err(BuildError::Zero("Sequence::remember"));
        }
        if self.idle.is_zero() {
            return Err(BuildError::Zero("Sequence::remember"));
        }
        Ok(())
    }

    pub(crate) fn into_parts(self) -> (Version<M>, Sequencing<K>) {
        let mut sequencing = self.sequencing;
        sequencing.versions = Versions::new(self.keys, self.idle, self.store);
        (self.version, sequencing)
    }
}

impl<K, M> fmt::Debug for Sequence<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence")
            .field("mode", &self.sequencing.mode)
            .field("start", &self.sequencing.start)
            .field("early", &self.sequencing.early)
            .field("gap_timeout", &self.sequencing.patience)
            .field("on_gap", &self.sequencing.on_gap)
            .finish_non_exhaustive()
    }
}
