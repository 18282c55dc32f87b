//! The application's view of a source that is consumed, and its controls.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use keylane_connector::PartFailure;
use tokio::sync::Notify;

use keylane_connector::lock;

/// A handle to a [`KafkaSource`](crate::KafkaSource) that is consumed. It shows how far the
/// partitions are, and pauses and resumes them. It can be cloned. Get it from
/// [`KafkaSource::control`](crate::KafkaSource::control) before the source is consumed.
///
/// To pause a single key, pause its lane: see [`Dispatcher::lane`](keylane::Dispatcher::lane). To
/// pause everything, use [`Intake::pause`](keylane::consume::Intake::pause).
#[derive(Clone, Debug, Default)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    partitions: Mutex<Vec<PartitionStatus>>,
    paused: Mutex<BTreeSet<(String, i32)>>,
    /// How often the set of paused partitions has changed. Written after it, and read before it.
    changes: AtomicU64,
    changed: Notify,
}

/// The status of a partition.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    /// The topic.
    pub topic: String,
    /// The number of the partition.
    pub partition: i32,
    /// The frontier: all records below this offset are settled.
    pub position: u64,
    /// The committed offset, as far as this process knows.
    pub committed: Option<u64>,
    /// One past the last record that was handed over.
    pub end: u64,
    /// One past the last readable record of the log, as of the client's latest statistics, a second
    /// ago. Without [`read_uncommitted`][level] that is where the first open transaction begins.
    /// `None`: it is not known yet, or the property `statistics.interval.ms` is 0.
    ///
    /// [level]: https://kafka.apache.org/documentation/#consumerconfigs_isolation.level
    pub log_end: Option<u64>,
    /// How many records were handed over and have not settled.
    pub open: usize,
    /// How many offsets are settled above the frontier.
    pub beyond: u64,
    /// Whether [`Control::pause`] was called for it.
    pub is_paused: bool,
    /// The records that retention had deleted when the partition began in this process, or because
    /// of which it [halts](crate::OnOvertaken::Halt).
    pub overtaken: Option<Overtaken>,
    /// Why the partition cannot be read, or cannot begin, now. The source tries again; the other
    /// partitions go on.
    pub failure: Option<PartFailure>,
    /// Whether the partition hands over nothing more, because the metadata of a commit is near its
    /// limit: see [`MetadataFull::Pause`](crate::MetadataFull::Pause).
    pub is_full: bool,
}

/// Records that retention deleted before the group handled them: from the committed offset to the
/// start of the log. See [`OnOvertaken`](crate::OnOvertaken).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overtaken {
    /// The committed offset.
    pub committed: u64,
    /// The first offset of the log.
    pub log_start: u64,
}

impl PartitionStatus {
    /// Returns how far the group is behind in this partition: from the committed offset to
    /// [`log_end`](Self::log_end). Offsets without a record count, as in `kafka-consumer-groups`.
    /// Those behind the last record of a log, such as the mark of a transaction, are passed with
    /// the next record: until then the lag is not 0. Records that are settled
    /// [`beyond`](Self::beyond) the frontier count as not settled.
    pub fn lag(&self) -> Option<u64> {
        let from = self.committed.unwrap_or(self.position);
        Some(self.log_end?.saturating_sub(from))
    }
}

impl Control {
    /// Returns the partitions of this process, by topic and number, as they were at most a second
    /// ago.
    pub fn partitions(&self) -> Vec<PartitionStatus> {
        lock(&self.shared.partitions).clone()
    }

    /// Stops handing over records of this partition. Records that were handed over go on. The pause
    /// holds for the life of the source, also if the partition is not here yet, or goes and comes
    /// back.
    pub fn pause(&self, topic: impl Into<String>, partition: i32) {
        self.change(|paused| {
            paused.insert((topic.into(), partition));
        });
    }

    /// Reverts [`pause`](Self::pause).
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

    /// Waits until a partition is paused or resumed.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// How often a partition was paused or resumed.
    pub(crate) fn changes(&self) -> u64 {
        self.shared.changes.load(Ordering::Acquire)
    }

    pub(crate) fn paused(&self) -> BTreeSet<(String, i32)> {
        lock(&self.shared.paused).clone()
    }
}
