//! Histories written by hand, for the tests of the rules.

use std::time::Duration;

use tokio::time::Instant;

use crate::check::evidence::Evidence;
use crate::check::judge::check;
use crate::check::rule::Rule;
use crate::check::verdict::{Finding, Verdict};
use crate::check::violation::Violation;
use crate::events::{Acceptance, Event, Id, Key, Outcome, Record, Token};

/// A history under construction. Its clock starts at `base`, and only [`at`](Self::at) moves it.
#[derive(Debug, Clone)]
pub(super) struct Planted {
    pub(super) base: Instant,
    now: Duration,
    pub(super) records: Vec<Record>,
}

impl Planted {
    pub(super) fn new() -> Self {
        Self {
            base: Instant::now(),
            now: Duration::ZERO,
            records: Vec::new(),
        }
    }

    /// Moves the clock to `ms` after the start.
    pub(super) fn at(mut self, ms: u64) -> Self {
        self.set_now(ms);
        self
    }

    pub(super) fn set_now(&mut self, ms: u64) {
        self.now = Duration::from_millis(ms);
    }

    pub(super) fn time(&self, ms: u64) -> Instant {
        self.base + Duration::from_millis(ms)
    }

    pub(super) fn event(mut self, event: Event) -> Self {
        self.push(event);
        self
    }

    pub(super) fn push(&mut self, event: Event) {
        self.records.push(Record {
            at: self.base + self.now,
            event,
        });
    }

    /// Accepted messages of a key: `(seq, id)`.
    pub(super) fn sent<const N: usize>(self, key: Key, messages: [(u64, Id); N]) -> Self {
        messages.into_iter().fold(self, |planted, (seq, id)| {
            planted.answered(key, seq, id, Acceptance::Ok)
        })
    }

    pub(super) fn answered(
        self,
        key: impl Into<Option<Key>>,
        seq: u64,
        id: Id,
        acceptance: Acceptance,
    ) -> Self {
        self.event(Event::Sent {
            key: key.into(),
            seq,
            id,
            acceptance,
        })
    }

    pub(super) fn start(self, id: Id, attempt: u32) -> Self {
        self.start_under(0, id, attempt)
    }

    pub(super) fn start_under(self, token: Token, id: Id, attempt: u32) -> Self {
        self.event(Event::Start { id, attempt, token })
    }

    pub(super) fn end(self, id: Id, attempt: u32, outcome: Outcome) -> Self {
        self.event(Event::End {
            id,
            attempt,
            outcome,
        })
    }

    pub(super) fn ok(self, id: Id, attempt: u32) -> Self {
        self.end(id, attempt, Outcome::Ok)
    }

    pub(super) fn error(self, id: Id, attempt: u32) -> Self {
        self.end(id, attempt, Outcome::Error)
    }

    /// Starts and ends well.
    pub(super) fn done(self, id: Id) -> Self {
        self.start(id, 1).ok(id, 1)
    }

    /// Starts and fails.
    pub(super) fn failed(self, id: Id, attempt: u32) -> Self {
        self.start(id, attempt).error(id, attempt)
    }

    pub(super) fn ack_req(self, id: Id) -> Self {
        self.event(Event::AckReq { id })
    }

    pub(super) fn acked(self, id: Id) -> Self {
        self.ack_req(id).event(Event::AckOk { id })
    }

    pub(super) fn dead(self, id: Id) -> Self {
        self.event(Event::Dead { id })
    }

    pub(super) fn coalesced(self, id: Id, into: Id) -> Self {
        self.event(Event::Coalesced { id, into })
    }

    pub(super) fn crash(self, epoch: Token) -> Self {
        self.event(Event::Crash { epoch })
    }

    pub(super) fn revoke(self) -> Self {
        self.event(Event::Revoke { generation: 1 })
    }

    pub(super) fn write(self, key: Key, token: Token, accepted: bool) -> Self {
        self.event(Event::SinkWrite {
            key,
            token,
            accepted,
        })
    }

    /// Evidence that the history is quiescent at its end.
    pub(super) fn whole(&self) -> Evidence {
        Evidence::new().quiescent(self.base + self.now)
    }

    pub(super) fn check(&self, evidence: &Evidence) -> Result<Verdict, Vec<Violation>> {
        check(&self.records, evidence)
    }

    /// Asserts that no rule is broken, and that `rule` was judged whole.
    #[track_caller]
    pub(super) fn holds(&self, evidence: &Evidence, rule: Rule) {
        self.check(evidence)
            .expect("a good history")
            .assert_judged(&[rule]);
    }

    /// Asserts that only `rule` is broken, with a text that contains `what` and with these `ids`.
    #[track_caller]
    pub(super) fn breaks(&self, evidence: &Evidence, rule: Rule, what: &str, ids: &[Id]) {
        self.breaks_among(evidence, rule, what, ids, &[]);
    }

    /// As [`breaks`](Self::breaks), but the rules in `also` may be broken too.
    #[track_caller]
    pub(super) fn breaks_among(
        &self,
        evidence: &Evidence,
        rule: Rule,
        what: &str,
        ids: &[Id],
        also: &[Rule],
    ) {
        let violations = self.check(evidence).expect_err("a bad history");
        let found = violations.iter().any(|violation| {
            violation.rule == rule && violation.what.contains(what) && violation.ids == ids
        });
        assert!(
            found,
            "expected {rule} by {ids:?}: … {what} …, but found {violations:#?}"
        );
        let other = violations
            .iter()
            .find(|v| v.rule != rule && !also.contains(&v.rule));
        assert!(other.is_none(), "{other:?}");
    }

    /// Asserts that no rule is broken, and that `rule` was not judged.
    #[track_caller]
    pub(super) fn leaves_unjudged(&self, evidence: &Evidence, rule: Rule) {
        let verdict = self.check(evidence).expect("a good history");
        let finding = verdict.finding(rule);
        assert!(
            matches!(finding, Finding::NotJudged(_)),
            "{rule}: {finding}"
        );
    }

    /// Asserts that no rule is broken, and that a part of `rule` was not judged because `what` is
    /// missing.
    #[track_caller]
    pub(super) fn leaves_in_part(&self, evidence: &Evidence, rule: Rule, what: &str) {
        let verdict = self.check(evidence).expect("a good history");
        let finding = verdict.finding(rule);
        let lacks = matches!(
            finding,
            Finding::InPart(missing) if missing.iter().any(|missing| missing.contains(what))
        );
        assert!(lacks, "{rule}: {finding}");
    }
}
