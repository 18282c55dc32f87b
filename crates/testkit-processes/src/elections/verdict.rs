//! The judge of an election.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use super::court::Court;
use super::{Fault, Gaps, Tenure, Write, Written};
use crate::Entry;

/// How long a change may take on a machine that is busy.
const GENEROUS: Duration = Duration::from_secs(90);

/// What leaders did while a test disturbed them, in figures.
///
/// A process that was paused cannot know that its term is over: the step that it was about to make
/// when it was paused is a *tail*. The fence must refuse what a tail writes.
#[derive(Debug, Default)]
pub struct Verdict {
    /// How many faults there were.
    pub faults: usize,
    /// How many terms were inaugurated.
    pub terms: usize,
    /// How many writes the fenced sink has accepted.
    pub accepted: usize,
    /// How many writes the fenced sink has refused.
    pub refused: usize,
    /// Writes that the fenced sink has accepted after one of a later term.
    pub stale: Vec<Write>,
    /// How many of those its twin without a fence has accepted.
    pub stale_in_twin: usize,
    /// Writes that were accepted, as their leader knows, and that the sink does not have.
    pub lost: Vec<Write>,
    /// Writes that the fenced sink has twice.
    pub twice: Vec<Write>,
    /// Terms that did something after another one, the second, had begun.
    pub overlapping: Vec<(Tenure, Tenure)>,
    /// Terms that held their lease at the end of `hand_over`, when the second had begun.
    pub early: Vec<(Tenure, Tenure)>,
    /// Terms that were inaugurated and not handed over exactly once. Not those of processes that
    /// were killed.
    pub not_handed_over: Vec<(Tenure, usize)>,
    /// Terms that were handed over and never inaugurated.
    pub not_inaugurated: Vec<Tenure>,
    /// Terms that began although the leader was to stay: a candidate of a better rank had joined,
    /// or its clock was set.
    pub preempted: Vec<Tenure>,
    /// Terms that began although the leader had left for another candidate.
    pub passed_over: Vec<Tenure>,
    /// How many steps were the tail of a paused process.
    pub tails: usize,
    /// How long after each fault another leader was inaugurated.
    pub gaps: Gaps,
}

impl Verdict {
    /// Judges the lines of a journal in the order in which they were written, and the sinks.
    ///
    /// # Panics
    ///
    /// Panics if a line is not one of an election.
    pub fn judge(lines: &[Entry], written: &Written) -> Self {
        let mut court = Court::default();
        for line in lines {
            court.hear(line);
        }
        let not_handed_over = court.lives.iter().filter_map(|(own, life)| {
            let is_well = life.hand_overs == 1 || life.hand_overs == 0 && life.is_killed;
            (!is_well).then_some((*own, life.hand_overs))
        });
        let mut not_handed_over: Vec<_> = not_handed_over.collect();
        not_handed_over.sort_unstable();
        let kept: HashSet<Write> = written.fenced.iter().copied().collect();
        let mut lost: Vec<Write> = court.accepted.difference(&kept).copied().collect();
        lost.sort_unstable();
        Self {
            faults: court.faults,
            terms: court.lives.len(),
            accepted: court.accepted.len(),
            refused: court.refused,
            stale: stale(&written.fenced),
            stale_in_twin: stale(&written.plain).len(),
            lost,
            twice: twice(&written.fenced),
            overlapping: court.overlapping,
            early: court.early,
            not_handed_over,
            not_inaugurated: court.not_inaugurated,
            preempted: court.preempted,
            passed_over: court.passed_over,
            tails: court.tails,
            gaps: Gaps::new(court.gaps),
        }
    }

    /// Fails if two terms acted at once, or one was handed over wrongly.
    ///
    /// # Panics
    ///
    /// Panics then, with what was wrong.
    pub fn assert_one_leader(&self) {
        let found = [
            ("stale", format!("{:?}", self.stale)),
            ("lost", format!("{:?}", self.lost)),
            ("twice", format!("{:?}", self.twice)),
            ("overlapping", format!("{:?}", self.overlapping)),
            ("early", format!("{:?}", self.early)),
            ("not handed over", format!("{:?}", self.not_handed_over)),
            ("not inaugurated", format!("{:?}", self.not_inaugurated)),
            ("preempted", format!("{:?}", self.preempted)),
            ("passed over", format!("{:?}", self.passed_over)),
        ];
        for (what, found) in found {
            assert!(found == "[]", "{what}: {found}");
        }
        assert!(self.accepted > 0, "nothing was written");
    }

    /// In a soak, which has `KEYLANE_CHANGES`: [`assert_prompt`](Self::assert_prompt). Without it,
    /// successors must only come within a minute and a half.
    ///
    /// # Panics
    ///
    /// Panics if one came later.
    pub fn assert_in_time(&self, lost: Duration, resigned: Duration) {
        let longest = self.gaps.longest();
        match std::env::var_os(CHANGES) {
            Some(_) => self.assert_prompt(lost, resigned),
            None => assert!(longest <= GENEROUS, "{longest:?} without a leader"),
        }
    }

    /// Fails if successors came late: more often than once in a hundred times later than `lost`
    /// after a leader was killed or paused, or ten times `resigned` after one has resigned; or half
    /// of them later than `resigned` after that. A machine that is busy for a moment is no reason.
    ///
    /// # Panics
    ///
    /// Panics then, with the times that are too long.
    pub fn assert_prompt(&self, lost: Duration, resigned: Duration) {
        let late = self.gaps.late(Fault::is_sudden, lost);
        assert!(late.is_empty(), "after a leader was lost: {late:?}");
        let late = self.gaps.late(Fault::is_orderly, 10 * resigned);
        assert!(late.is_empty(), "after a leader resigned: {late:?}");
        let half = self.gaps.half(Fault::is_orderly);
        assert!(half <= resigned, "half after a leader resigned: {half:?}");
    }
}

/// The variable that makes a trial a soak: how many changes it has.
pub(super) const CHANGES: &str = "KEYLANE_CHANGES";

/// Returns the writes that come after one of a later term.
fn stale(writes: &[Write]) -> Vec<Write> {
    let mut newest = 0;
    let is_stale = |write: &&Write| {
        newest = newest.max(write.token);
        write.token < newest
    };
    writes.iter().filter(is_stale).copied().collect()
}

fn twice(writes: &[Write]) -> Vec<Write> {
    let mut known = HashSet::new();
    let again = writes.iter().filter(|write| !known.insert(**write));
    again.copied().collect()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} faults, {} terms; {} writes accepted, {} refused, {} stale, {} stale without the \
             fence; {} overlapping, {} tails, {} not handed over once; successor after (half, 99 %, \
             all, in seconds): {}",
            self.faults,
            self.terms,
            self.accepted,
            self.refused,
            self.stale.len(),
            self.stale_in_twin,
            self.overlapping.len(),
            self.tails,
            self.not_handed_over.len(),
            self.gaps,
        )
    }
}
