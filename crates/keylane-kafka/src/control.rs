//! What an application sees of a source that is consumed, and what it may say to it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::lock;

/// The view into a [`KafkaSource`](crate::KafkaSource) from outside: how far its partitions are,
/// and which of them are paused. It can be cloned, and is taken with
/// [`KafkaSource::control`](crate::KafkaSource::control) before the source is consumed.
///
/// A single key is paused in its lane: see
/// [`Dispatcher::lane`](keylane::Dispatcher::lane). To pause everything, use
/// [`Intake::pause`](keylane::Intake::pause).
#[derive(Clone, Debug, Default)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    partitions: Mutex<Vec<PartitionStatus>>,
    paused: Mutex<BTreeSet<(String, i32)>>,
    /// How often that has changed. Written after it, and read before it.
    changes: AtomicU64,
    changed: Notify,
}

/// How far a partition is.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    /// The topic.
    pub topic: String,
    /// The number of the partition.
    pub partition: i32,
    /// The frontier: everything below this offset is settled.
    pub position: u64,
    /// What is committed, as far as this process knows.
    pub committed: Option<u64>,
    /// One past the last offset that was handed over.
    pub end: u64,
    /// One past the last record of the log that may be read, as the client knew it a second ago.
    /// Without
    /// [`read_uncommitted`](https://kafka.apache.org/documentation/#consumerconfigs_isolation.level)
    /// that is where the first open transaction begins. `None`: it is not known yet, or the
    /// property `statistics.interval.ms` is 0.
    pub log_end: Option<u64>,
    /// How many records were handed over and are not settled.
    pub open: usize,
    /// How many are settled above the frontier.
    pub beyond: u64,
    /// [`Control::pause`] was called for it.
    pub is_paused: bool,
    /// Retention had overtaken what was committed of it when it was given to this process, or it
    /// was to [halt](crate::OnOvertaken::Halt) then.
    pub overtaken: Option<Overtaken>,
    /// It cannot be read now, or not begun, and is tried again: the others go on.
    pub failure: Option<PartitionFailure>,
    /// Nothing more is handed over, because the metadata of a commit is nearly as long as it may
    /// be: see [`MetadataFull::Pause`](crate::MetadataFull::Pause).
    pub is_full: bool,
}

/// Records of a partition that retention has deleted before the group had handled them: from what
/// was committed to the start of the log. See [`OnOvertaken`](crate::OnOvertaken).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overtaken {
    /// The offset that was committed.
    pub committed: u64,
    /// The first offset that the log had.
    pub log_start: u64,
}

/// Why a partition is not read while others are.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionFailure {
    /// What is wrong.
    pub why: String,
    /// When it failed first since it was well.
    pub since: Instant,
    /// When it failed last.
    pub last: Instant,
}

impl PartitionStatus {
    /// How far the group is behind in this partition: from what is committed to
    /// [`log_end`](Self::log_end). Offsets without a record count, as they do in
    /// `kafka-consumer-groups`; what is settled [`beyond`](Self::beyond) does not count as settled.
    pub fn lag(&self) -> Option<u64> {
        let from = self.committed.unwrap_or(self.position);
        Some(self.log_end?.saturating_sub(from))
    }
}

impl Control {
    /// The partitions that this process has, by topic and number, as they were at most a second
    /// ago.
    pub fn partitions(&self) -> Vec<PartitionStatus> {
        lock(&self.shared.partitions).clone()
    }

    /// Has nothing more of this partition handed over. What was handed over goes on. It holds for
    /// the life of the source, also if the partition is not here yet, or goes and comes back.
    pub fn pause(&self, topic: impl Into<String>, partition: i32) {
        self.change(|paused| {
            paused.insert((topic.into(), partition));
        });
    }

    /// Takes [`pause`](Self::pause) back.
    pub fn resume(&self, topic: impl Into<String>, partition: i32) {
        self.change(|paused| {
            paused.remove(&(topic.into(), partition));
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<(String, i32)>)) {
        change(&mut lock(&self.shared.paused));
        self.shared.changes.fetch_add(1, Ordering::Release);
        self.shared.changed.notify_one();
    }

    pub(crate) fn publish(&self, mut partitions: Vec<PartitionStatus>) {
        partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        *lock(&self.shared.partitions) = partitions;
    }

    /// Waits until something was paused or resumed.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// How often something was paused or resumed.
    pub(crate) fn changes(&self) -> u64 {
        self.shared.changes.load(Ordering::Acquire)
    }

    pub(crate) fn paused(&self) -> BTreeSet<(String, i32)> {
        lock(&self.shared.paused).clone()
    }
}
