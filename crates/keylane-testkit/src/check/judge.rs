//! Reads a history and judges it by every rule.

use super::evidence::Evidence;
use super::judgement::Judgement;
use super::rule::Rule;
use super::story::Story;
use super::verdict::Verdict;
use super::violation::Violation;
use super::{fencing, figures, letters, liveness, order, settlement, versions};
use crate::events::Record;

/// Judges a history.
///
/// # Errors
///
/// The violations, at least one, in the order of the rules. Of each rule only the first few.
pub fn check(records: &[Record], evidence: &Evidence) -> Result<Verdict, Vec<Violation>> {
    let story = Story::read(records, evidence);
    let judgements = [
        settlement::no_loss(&story),
        settlement::no_invention(&story),
        order::exclusion(&story),
        order::order(&story),
        settlement::acks(&story),
        Judgement::not_judged(Rule::Offsets, "the events carry no offsets"),
        settlement::duplicates(&story),
        letters::dead_letters(&story),
        versions::coalescing(&story),
        versions::sequencing(&story),
        liveness::liveness(&story),
        fencing::fencing(&story),
        figures::memory(&story),
        figures::drain(&story),
        figures::independence(&story),
    ];
    let mut findings = Vec::new();
    let mut violations = Vec::new();
    for judgement in judgements {
        match judgement.close() {
            (rule, Ok(finding)) => findings.push((rule, finding)),
            (_, Err(broken)) => violations.extend(broken),
        }
    }
    if violations.is_empty() {
        Ok(Verdict::new(findings))
    } else {
        Err(violations)
    }
}
