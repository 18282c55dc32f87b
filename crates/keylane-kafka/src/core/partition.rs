//! One partition in one generation: its open records and its next commit. Pure.
//!
//! ```text
//!  Live ──► Rewinding ─┐   the source goes back in the log by itself
//!   │                  ▼
//!   └─────► Revoked ─► gone
//! ```

use std::ops::Range;

use keylane_source::frontier::{Beyond, Completion, DeliverError, Delivered, Frontier, Limits};
use keylane_source::{Generation, Outcome};

use crate::metadata::Encoded;

/// Most runs that the metadata of a commit considers. So many never fit.
const MOST_RUNS: usize = 1 << 16;

/// With [`MetadataFull::Pause`], intake stops when the metadata is longer than this share of its
/// limit.
const FULL: (usize, usize) = (3, 4);

/// What happens when the offsets that are done beyond a committed one do not fit into the metadata
/// of the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataFull {
    /// The partition goes on. The next owner of the partition handles the offsets that do not fit
    /// again, unless the frontier has passed them by then.
    #[default]
    Repeat,
    /// The partition hands over nothing more while the metadata takes three quarters of its limit
    /// or more. So a key that is slow or halted stops the partition, and next to nothing is
    /// repeated.
    Pause,
}

/// Where a partition begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// The offset from which the log is read.
    pub(crate) at: u64,
    /// The offsets above it that are done.
    pub(crate) beyond: Beyond,
    /// Whether this is the committed offset of the group.
    pub(crate) is_committed: bool,
}

/// The phase of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is ours.
    Live,
    /// It is ours, and begins again at its frontier when its work here has ended.
    Rewinding,
    /// The group gets it back when its work here has ended.
    Revoked,
}

#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) generation: Generation,
    pub(crate) phase: Phase,
    frontier: Frontier,
    /// The first offset to hand over.
    begins_at: u64,
    /// How many records have settled that no commit contains.
    unsaid: u64,
    /// The committed offset of the broker: all records below it are settled.
    committed: Option<u64>,
    /// The metadata of the last commit is too long to take more records.
    is_full: bool,
    /// A record was returned, and comes again only if the log is read again.
    has_returned: bool,
}

/// A commit of one partition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) generation: Generation,
    pub(crate) offset: u64,
    /// The offsets above it that are done.
    pub(crate) runs: Vec<Range<u64>>,
    /// How many settlements it contains that no earlier commit does.
    pub(crate) said: u64,
    /// It only commits where the partition begins: no record is done.
    pub(crate) is_start: bool,
}

impl Partition {
    pub(crate) fn new(generation: Generation, start: Start, limits: Limits) -> Self {
        let Start {
            at,
            beyond,
            is_committed,
        } = start;
        Self {
            generation,
            phase: Phase::Live,
            frontier: Frontier::resume(at, beyond).with_limits(limits),
            // A group without a committed offset commits where it begins. Otherwise its next member
            // may begin elsewhere, and skip records that have come meanwhile.
            unsaid: u64::from(!is_committed),
            begins_at: at,
            committed: is_committed.then_some(at),
            is_full: false,
            has_returned: false,
        }
    }

    /// Whether more records may be handed over.
    pub(crate) fn takes(&self) -> bool {
        self.phase == Phase::Live && !self.is_full && !self.has_returned
    }

    /// Takes the next offset of the log.
    #[inline]
    pub(crate) fn deliver(&mut self, offset: u64) -> Result<Delivered, DeliverError> {
        let delivered = self.frontier.deliver(offset);
        if let Ok(Delivered::Done) = delivered {
            self.passed_gap();
        }
        delivered
    }

    /// What is committed may be a gap of the log, with nothing but records behind it that are done.
    /// Then no settlement moves the committed offset on.
    #[cold]
    fn passed_gap(&mut self) {
        if self.unsaid == 0 && self.committed < Some(self.frontier.position()) {
            self.unsaid = 1;
        }
    }

    /// Settles a record that was handed over.
    #[inline]
    pub(crate) fn settle(&mut self, offset: u64, outcome: Outcome) {
        if !outcome.is_ack() {
            self.has_returned = true;
            return;
        }
        match self.frontier.complete(offset) {
            Completion::Advanced { .. } | Completion::Beyond => self.unsaid += 1,
            Completion::AlreadyDone | Completion::NotOpen => {}
        }
    }

    /// Whether this offset is open: handed over and not settled.
    pub(crate) fn is_open(&self, offset: u64) -> bool {
        offset < self.frontier.end() && !self.frontier.is_done(offset)
    }

    /// How many records have settled that no commit contains.
    #[inline]
    pub(crate) fn unsaid(&self) -> u64 {
        self.unsaid
    }

    /// Returns the next commit, if there is anything new. Its settlements count as committed from
    /// now on.
    pub(crate) fn commit(&mut self) -> Option<Commit> {
        let said = std::mem::take(&mut self.unsaid);
        let offset = self.frontier.position();
        (said > 0).then(|| Commit {
            generation: self.generation,
            offset,
            runs: self.frontier.beyond().take(MOST_RUNS).collect(),
            said,
            is_start: offset == self.begins_at && self.frontier.beyond_len() == 0,
        })
    }

    /// Records that the broker has taken a commit.
    pub(crate) fn committed(
        &mut self,
        commit: &Commit,
        encoded: &Encoded,
        full_from: Option<usize>,
    ) {
        self.committed = self.committed.max(Some(commit.offset));
        // Without room for any metadata, it is full as long as an offset beyond the committed one
        // is done.
        let is_beyond = !encoded.text.is_empty() || encoded.left_out.is_some();
        self.is_full = is_beyond && full_from.is_some_and(|from| encoded.text.len() >= from);
    }

    /// Records that the broker has not taken a commit, so that it is sent again.
    pub(crate) fn not_committed(&mut self, commit: &Commit) {
        self.unsaid += commit.said;
    }

    /// Whether any record was handed over.
    pub(crate) fn has_begun(&self) -> bool {
        self.end() > self.begins_at
    }

    /// Marks the partition to be read again from its frontier.
    pub(crate) fn read_again(&mut self) {
        self.has_returned = true;
    }

    /// Whether it must go back in the log, because a record was returned.
    pub(crate) fn has_returned(&self) -> bool {
        self.phase == Phase::Live && self.has_returned
    }

    /// Returns where the next generation of it begins, here or elsewhere.
    pub(crate) fn resumption(&self) -> Start {
        let at = self.frontier.position();
        Start {
            at,
            beyond: self.frontier.beyond().collect(),
            is_committed: self.unsaid == 0 && self.committed == Some(at),
        }
    }

    /// The offset below which all records have settled.
    pub(crate) fn position(&self) -> u64 {
        self.frontier.position()
    }

    /// One past the last offset that was handed over.
    pub(crate) fn end(&self) -> u64 {
        self.frontier.end()
    }

    pub(crate) fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// The committed offset of the group, as far as this process knows.
    pub(crate) fn committed_offset(&self) -> Option<u64> {
        self.committed
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }
}

impl MetadataFull {
    /// Returns from how many characters on a partition takes no more records.
    pub(crate) fn full_from(self, most_chars: usize) -> Option<usize> {
        match self {
            Self::Repeat => None,
            Self::Pause => Some(most_chars * FULL.0 / FULL.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(at: u64) -> Partition {
        let start = Start {
            at,
            is_committed: true,
            ..Start::default()
        };
        Partition::new(Generation(1), start, Limits::default())
    }

    fn delivered(offsets: Range<u64>) -> Partition {
        let mut partition = partition(offsets.start);
        for offset in offsets {
            assert_eq!(partition.deliver(offset), Ok(Delivered::Open));
        }
        partition
    }

    #[test]
    fn a_commit_never_passes_what_is_open() {
        let mut partition = delivered(10..20);
        assert_eq!(partition.commit(), None);
        for offset in [12, 13, 10] {
            partition.settle(offset, Outcome::Done);
        }
        let commit = partition.commit().unwrap();
        assert_eq!((commit.offset, commit.said), (11, 3));
        assert!(commit.runs.iter().cloned().eq(std::iter::once(12..14)));
        assert_eq!(partition.commit(), None);
        partition.settle(11, Outcome::DeadLettered);
        let commit = partition.commit().unwrap();
        assert_eq!((commit.offset, commit.runs.len()), (14, 0));
    }

    #[test]
    fn a_commit_that_failed_is_said_again() {
        let mut partition = delivered(0..4);
        partition.settle(0, Outcome::Done);
        let commit = partition.commit().unwrap();
        partition.not_committed(&commit);
        partition.settle(1, Outcome::Done);
        let again = partition.commit().unwrap();
        assert_eq!((again.offset, again.said), (2, 2));
    }

    #[test]
    fn what_settles_twice_counts_once() {
        let mut partition = delivered(0..2);
        partition.settle(0, Outcome::Done);
        partition.settle(0, Outcome::Done);
        partition.settle(7, Outcome::Done);
        assert_eq!(partition.unsaid(), 1);
    }

    #[test]
    fn a_group_without_an_offset_commits_where_it_begins() {
        let start = Start {
            at: 7,
            ..Start::default()
        };
        let mut partition = Partition::new(Generation(1), start, Limits::default());
        assert_eq!(partition.commit().unwrap().offset, 7);
        assert_eq!(partition.commit(), None);
    }

    #[test]
    fn a_commit_passes_a_gap_before_what_is_done() {
        let done = Start {
            at: 5,
            beyond: std::iter::once(6..8).collect(),
            is_committed: true,
        };
        // The log has lost 5.
        let mut partition = Partition::new(Generation(1), done.clone(), Limits::default());
        for offset in [6, 7] {
            assert_eq!(partition.deliver(offset), Ok(Delivered::Done));
        }
        assert_eq!(partition.commit().unwrap().offset, 8);
        // Without a gap there is nothing to commit.
        let mut partition = Partition::new(Generation(2), done, Limits::default());
        assert_eq!(partition.deliver(5), Ok(Delivered::Open));
        assert_eq!(partition.deliver(6), Ok(Delivered::Done));
        assert_eq!(partition.commit(), None);
    }

    #[test]
    fn what_is_given_back_stays_open_and_stops_the_intake() {
        let mut partition = delivered(0..3);
        partition.settle(0, Outcome::Done);
        partition.settle(2, Outcome::Done);
        assert!(partition.takes());
        partition.settle(1, Outcome::returned(0));
        assert!(!partition.takes() && partition.has_returned());
        let resumed = partition.resumption();
        assert_eq!(resumed.at, 1);
        assert!(resumed.beyond.runs().eq(std::iter::once(2..3)));
        assert!(!resumed.is_committed);
        let mut partition = Partition::new(Generation(2), resumed, Limits::default());
        assert_eq!(partition.deliver(1), Ok(Delivered::Open));
        assert_eq!(partition.deliver(2), Ok(Delivered::Done));
        partition.settle(1, Outcome::Done);
        assert_eq!(partition.commit().unwrap().offset, 3);
    }

    #[test]
    fn a_partition_that_is_to_pause_does_so_near_the_limit() {
        let encoded = |chars: usize| Encoded {
            text: "x".repeat(chars),
            left_out: None,
        };
        for (full, pauses) in [(MetadataFull::Repeat, false), (MetadataFull::Pause, true)] {
            let mut partition = delivered(0..2);
            partition.settle(1, Outcome::Done);
            let commit = partition.commit().unwrap();
            let from = full.full_from(100);
            partition.committed(&commit, &encoded(74), from);
            assert!(partition.takes());
            partition.committed(&commit, &encoded(75), from);
            assert_eq!(partition.takes(), !pauses);
            partition.committed(&commit, &encoded(3), from);
            assert!(partition.takes());
        }
    }

    #[test]
    fn a_partition_without_metadata_pauses_only_while_something_is_beyond() {
        let from = MetadataFull::Pause.full_from(0);
        let mut partition = delivered(0..2);
        partition.settle(1, Outcome::Done);
        let commit = partition.commit().unwrap();
        let encoded = Encoded {
            text: String::new(),
            left_out: Some(1),
        };
        partition.committed(&commit, &encoded, from);
        assert!(!partition.takes());
        partition.settle(0, Outcome::Done);
        let commit = partition.commit().unwrap();
        partition.committed(&commit, &Encoded::default(), from);
        assert!(partition.takes());
    }
}
