//! The metrics of a candidate.

use keylane_leases::Token;
use keylane_metrics::{Figures, LabelNames, Labels, Metric, Row, published};

use crate::career::{End, Following};
use crate::events::Event;

const ELECTION: LabelNames = LabelNames::new(&["election"]);

const IS_LEADER: Metric = ELECTION.gauge(
    "keylane_leader_is_leader",
    "Whether a candidate of this process leads: from its election until it is leaving.",
);
const KNOWN: Metric = ELECTION.gauge(
    "keylane_leader_known",
    "Candidates of this process that know a leader.",
);
const CANDIDATES: Metric =
    ELECTION.gauge("keylane_leader_candidates", "Candidates of this process.");
const TERMS: Metric = ELECTION.counter(
    "keylane_leader_terms_total",
    "How often a candidate of this process was elected.",
);
const CHANGES: Metric = ELECTION.counter(
    "keylane_leader_changes_total",
    "How often a candidate of this process has seen a new term, of its own or of another one.",
);
const DOUBTS: Metric = ELECTION.counter(
    "keylane_leader_doubts_total",
    "How often a renewal of the term was overdue.",
);
const ENDS: Metric = ELECTION.counter(
    "keylane_leader_ends_total",
    "Terms of this process that have ended, by reason: resigned, closed, finished, failed, lost.",
)
.labels(&["election", "reason"]);
const FAILURES: Metric = ELECTION.counter(
    "keylane_leader_failures_total",
    "Methods of the career that failed: prepare, inaugurate, hand_over, execute after a stop.",
);
const FAILED_CALLS: Metric = ELECTION.counter(
    "keylane_leader_failed_calls_total",
    "Calls to the election store that failed.",
);

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    leads: bool,
    knows: bool,
    terms: u64,
    changes: u64,
    doubts: u64,
    resigned: u64,
    closed: u64,
    finished: u64,
    failed: u64,
    lost: u64,
    failures: u64,
    failed_calls: u64,
}

static ROWS: [Row<Counts>; 13] = [
    Row::new(IS_LEADER, |counts| u64::from(counts.leads)),
    Row::new(KNOWN, |counts| u64::from(counts.knows)),
    Row::new(CANDIDATES, |_| 1),
    Row::new(TERMS, |counts| counts.terms),
    Row::new(CHANGES, |counts| counts.changes),
    Row::new(DOUBTS, |counts| counts.doubts),
    ends("resigned", |counts| counts.resigned),
    ends("closed", |counts| counts.closed),
    ends("finished", |counts| counts.finished),
    ends("failed", |counts| counts.failed),
    ends("lost", |counts| counts.lost),
    Row::new(FAILURES, |counts| counts.failures),
    Row::new(FAILED_CALLS, |counts| counts.failed_calls),
];

const fn ends(reason: &'static str, value: fn(&Counts) -> u64) -> Row<Counts> {
    Row::labelled(ENDS, ("reason", reason), value)
}

/// Returns the metrics that this crate publishes with the feature `metrics`. Those of its leases
/// are in [`keylane_leases::published_metrics`].
pub fn published_metrics() -> Vec<Metric> {
    published(&ROWS)
}

/// What a candidate publishes. Its events are rare: each is published when it happens.
#[derive(Debug)]
pub(crate) struct Record {
    figures: Figures<Counts>,
    counts: Counts,
    /// The last term that was seen.
    last: Option<Token>,
}

impl Record {
    /// Looks up the handles.
    pub(crate) fn new(election: &str) -> Self {
        let labels = Labels::new().with("election", election);
        let record = Self {
            figures: Figures::new(&ROWS, &labels),
            counts: Counts::default(),
            last: None,
        };
        record.show();
        record
    }

    fn show(&self) {
        self.figures.show(|| self.counts);
    }

    /// The candidate leads from now on, or not.
    pub(crate) fn leads(&mut self, leads: bool) {
        if self.counts.leads != leads {
            self.counts.leads = leads;
            self.show();
        }
    }

    /// This is the leader now.
    pub(crate) fn saw(&mut self, leader: Option<&Following>) {
        self.counts.knows = leader.is_some();
        let token = leader.map(|leader| leader.token);
        if token.is_some() && token != self.last {
            self.last = token;
            self.counts.changes += 1;
        }
        self.show();
    }

    /// A call to the store has failed.
    pub(crate) fn call_failed(&mut self) {
        self.counts.failed_calls += 1;
        self.show();
    }

    /// Something has happened.
    pub(crate) fn happened(&mut self, event: &Event) {
        let counts = &mut self.counts;
        let count = match event {
            Event::Elected(_) => &mut counts.terms,
            Event::Doubtful(_) => &mut counts.doubts,
            Event::Failed { .. } => &mut counts.failures,
            Event::Leaving(End::Resigned | End::HandedTo(_)) => &mut counts.resigned,
            Event::Leaving(End::Closed) => &mut counts.closed,
            Event::Leaving(End::Finished) => &mut counts.finished,
            Event::Leaving(End::Failed(_) | End::Panicked(_)) => &mut counts.failed,
            Event::Leaving(End::Lost(_) | End::OtherHistory) => &mut counts.lost,
            _ => return,
        };
        *count += 1;
        self.show();
    }
}
