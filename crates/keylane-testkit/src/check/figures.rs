//! I13, I14, I15: rules about figures that the test measured.

use super::evidence::{Drained, Heap, Permits};
use super::judgement::Judgement;
use super::rule::Rule;
use super::story::{Message, Story};
use crate::events::Acceptance;

/// The share of their throughput that the other keys must keep beside a blocked key.
const KEPT_THROUGHPUT: f64 = 0.95;

/// I13: at quiescence no lane is left, all permits are free, and the heap is back at its baseline.
pub(super) fn memory(story: &Story<'_>) -> Judgement {
    let evidence = story.evidence;
    if evidence.lanes.is_none() && evidence.permits.is_none() && evidence.heap.is_none() {
        return Judgement::not_judged(Rule::Memory, "nothing was measured");
    }
    let mut judgement = Judgement::new(Rule::Memory);
    let mut broken = |what| judgement.broken(story, None, [], Vec::new(), what);
    match evidence.lanes {
        Some(0) | None => {}
        Some(lanes) => broken(format!("{lanes} lanes are left")),
    }
    match evidence.permits {
        Some(Permits { free, max }) if free != max => {
            broken(format!("{free} of {max} permits are free"));
        }
        _ => {}
    }
    match evidence.heap {
        Some(Heap {
            before,
            after,
            slack,
        }) if after > before.saturating_add(slack) => {
            let grown = after - before;
            broken(format!(
                "the heap grew by {grown} bytes from {before}, {slack} are allowed"
            ));
        }
        _ => {}
    }
    if evidence.lanes.is_none() {
        judgement.missing("the count of lanes");
    }
    if evidence.permits.is_none() {
        judgement.missing("the count of permits");
    }
    if evidence.heap.is_none() {
        judgement.missing("the size of the heap");
    }
    judgement
}

/// I14: when a drain returns, no attempt runs and none starts later. Its report adds up and agrees
/// with the history. If the history has a crash or a revoke, the report covers only a part of it
/// and is not compared.
pub(super) fn drain(story: &Story<'_>) -> Judgement {
    let Some(drained) = story.evidence.drained else {
        return Judgement::not_judged(Rule::Drain, "no drain returned a report");
    };
    let mut judgement = Judgement::new(Rule::Drain);
    for run in &story.runs {
        let what = if run.start >= drained.position {
            "started after the drain had returned"
        } else if run.is_open_at(drained.position) {
            "ran on after the drain had returned"
        } else {
            continue;
        };
        let what = format!("attempt {} {what}", run.attempt);
        let at = [run.start].into_iter().chain(run.end).collect();
        judgement.broken(story, story.key_of(run.id), [run.id], at, what);
    }
    let Drained {
        accepted,
        done,
        dead_lettered,
        discarded,
        coalesced,
        duplicates,
        expired,
        handed_back,
        ..
    } = drained;
    let others = coalesced + duplicates + expired;
    let settled = done + dead_lettered + discarded + others + handed_back;
    if settled != accepted {
        let what = format!(
            "{done} done + {dead_lettered} dead-lettered + {discarded} discarded + {coalesced} \
             coalesced + {duplicates} duplicates + {expired} expired + {handed_back} handed back = \
             {settled}, but {accepted} were accepted"
        );
        judgement.broken(story, None, [], Vec::new(), what);
    }
    if story.breaks.is_empty() {
        compare(story, &mut judgement, &drained);
    } else {
        judgement.missing("a history free of crashes and revokes, to compare the report with");
    }
    judgement
}

/// Compares a report with the history of the same messages.
fn compare(story: &Story<'_>, judgement: &mut Judgement, drained: &Drained) {
    let count = |is: &dyn Fn(&Message) -> bool| {
        story
            .messages
            .values()
            .filter(|message| is(message))
            .count() as u64
    };
    let counted = |message: &Message| !is_replaced(story, message);
    let accepted = count(&|message| message.is_accepted() && counted(message));
    let unsure =
        count(&|message| message.acceptance == Some(Acceptance::Unknown) && counted(message));
    let most = accepted + unsure;
    if !(accepted..=most).contains(&drained.accepted) {
        let what = format!(
            "the report counts {} accepted, the history {accepted} to {most}",
            drained.accepted
        );
        judgement.broken(story, None, [], Vec::new(), what);
    }
    let counts = [
        (
            "done",
            drained.done,
            count(&|message| !message.done.is_empty()),
        ),
        (
            "dead-lettered",
            drained.dead_lettered,
            count(&|message| !message.dead.is_empty()),
        ),
    ];
    for (what, reported, seen) in counts {
        if reported != seen {
            let what = format!("the report counts {reported} {what}, the history {seen}");
            judgement.broken(story, None, [], Vec::new(), what);
        }
    }
    compare_unhandled(story, judgement, drained);
}

/// Compares what a report counts of messages without an attempt.
fn compare_unhandled(story: &Story<'_>, judgement: &mut Judgement, drained: &Drained) {
    let mut broken = |what, reported: u64, seen: u64| {
        if reported != seen {
            let what = format!("the report counts {reported} {what}, and there were {seen}");
            judgement.broken(story, None, [], Vec::new(), what);
        }
    };
    let is_merged =
        |message: &&Message| message.coalesced.is_some() && !is_replaced(story, message);
    let merged = story.messages.values().filter(is_merged).count() as u64;
    let coalesces = story.evidence.coalescing || merged > 0;
    if coalesces {
        broken("coalesced", drained.coalesced, merged);
    }
    let named = [
        ("duplicates", drained.duplicates, &story.evidence.duplicates),
        ("expired", drained.expired, &story.evidence.expired),
    ];
    for (what, reported, ids) in named {
        if let Some(ids) = ids {
            broken(what, reported, ids.len() as u64);
        }
    }
    if drained.coalesced > 0 && !coalesces {
        judgement.missing("which messages were coalesced");
    }
    for (what, reported, ids) in named {
        if reported > 0 && ids.is_none() {
            judgement.missing(format!("which messages are {what}"));
        }
    }
}

/// Returns whether another message replaced it.
fn is_replaced(story: &Story<'_>, message: &Message) -> bool {
    let stand_in = message
        .coalesced
        .and_then(|(_, into)| story.messages.get(&into));
    stand_in.is_some_and(|other| other.key == message.key && other.seq == message.seq)
}

/// I15: while one key is blocked for ever the other keys keep their throughput.
pub(super) fn independence(story: &Story<'_>) -> Judgement {
    let Some(throughput) = story.evidence.throughput else {
        return Judgement::not_judged(Rule::Independence, "no throughput was measured");
    };
    let (with, without) = (throughput.with_blocked, throughput.without);
    if !(without.is_finite() && without > 0.0 && with.is_finite()) {
        return Judgement::not_judged(Rule::Independence, "the throughput measured is no number");
    }
    let mut judgement = Judgement::new(Rule::Independence);
    if with < KEPT_THROUGHPUT * without {
        let percent = 100.0 * with / without;
        let what =
            format!("beside a blocked key the others kept {percent:.1} % of their throughput");
        judgement.broken(story, None, [], Vec::new(), what);
    }
    judgement
}
