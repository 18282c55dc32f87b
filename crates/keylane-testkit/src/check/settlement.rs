//! I1, I2, I5, I7: every accepted message settles once, and no other message settles.

use super::judgement::Judgement;
use super::rule::Rule;
use super::story::{Message, Run, Story};
use crate::events::{Acceptance, Event, Id};

/// I1: at quiescence every accepted message is settled.
pub(super) fn no_loss(story: &Story<'_>) -> Judgement {
    if story.evidence.quiescent.is_none() {
        return Judgement::not_judged(Rule::NoLoss, "the history does not end at quiescence");
    }
    if !story.messages.values().any(Message::is_accepted) {
        return Judgement::not_judged(Rule::NoLoss, "nothing was accepted");
    }
    let mut judgement = Judgement::new(Rule::NoLoss);
    for (&id, message) in &story.messages {
        if message.is_accepted() && !story.is_settled(id) {
            let what = match (message.coalesced, story.runs_of(message).last()) {
                (Some((_, into)), _) => {
                    format!("was coalesced into id {into}, which never settled")
                }
                (None, Some(run)) => format!("never settled after attempt {}", run.attempt),
                (None, None) => "was accepted, and never started nor settled".to_owned(),
            };
            let last_run = story.runs_of(message).last();
            let last_run = last_run
                .into_iter()
                .flat_map(|run| [Some(run.start), run.end]);
            let at = message.sent.into_iter().chain(last_run.flatten()).collect();
            judgement.broken(story, message.key, [id], at, what);
        }
    }
    judgement
}

/// I2: a message with events was accepted (or may have been), once. Its attempts are counted
/// without gaps, and an attempt that ends has started.
pub(super) fn no_invention(story: &Story<'_>) -> Judgement {
    if story.messages.is_empty() {
        return Judgement::not_judged(Rule::NoInvention, "nothing happened to any message");
    }
    let mut judgement = Judgement::new(Rule::NoInvention);
    for (&id, message) in &story.messages {
        let mut broken = |at: Vec<usize>, what: String| {
            judgement.broken(story, message.key, [id], at, what);
        };
        if let Some(touched) = message.touched {
            let what = match message.acceptance {
                None => Some("was never sent"),
                Some(Acceptance::Fail) => Some("was refused, and yet taken up"),
                Some(Acceptance::Ok | Acceptance::Unknown) => None,
            };
            if let Some(what) = what {
                broken(
                    message.sent.into_iter().chain([touched]).collect(),
                    what.to_owned(),
                );
            }
        }
        if let Some(&again) = message.sent_again.first() {
            let at = message.sent.into_iter().chain([again]).collect();
            broken(at, "was accepted twice under one id".to_owned());
        }
        let mut before = 0;
        for run in story.runs_of(message) {
            if run.attempt == 0 || run.attempt > before + 1 {
                let what = format!("attempt {} began, after {before}", run.attempt);
                broken(vec![run.start], what);
            }
            before = run.attempt;
        }
    }
    for &at in &story.stray_ends {
        if let Event::End { id, attempt, .. } = story.records[at].event {
            let what = format!("attempt {attempt} ended, but did not run");
            let key = story.key_of(id);
            judgement.broken(story, key, [id], vec![at], what);
        }
    }
    judgement
}

/// I5: an ack is requested only after a successful end or a durable dead letter, of the message or
/// of the one that replaces it. Messages discarded by policy may be acked at any time.
pub(super) fn acks(story: &Story<'_>) -> Judgement {
    if !story.has_acks {
        return Judgement::not_judged(Rule::Acks, "there are no acks");
    }
    let mut judgement = Judgement::new(Rule::Acks);
    for (&id, message) in &story.messages {
        let Some(&acked) = message.acks.first() else {
            continue;
        };
        let settled = story.settled_at(id).is_some_and(|settled| settled < acked);
        if !settled && !story.evidence.discarded.contains(&id) {
            let what = if story.evidence.handed_back.contains(&id) {
                "was acked, but handed back"
            } else {
                "was acked before it was done or its dead letter durable"
            };
            let settled = story.settled_at(id);
            let at = [acked].into_iter().chain(settled).collect();
            let (key, what) = (message.key, what.to_owned());
            judgement.broken(story, key, [id], at, what);
        }
    }
    judgement
}

/// I7: a message starts again only for its next attempt, or after a break that left its ack
/// unconfirmed. It settles in one way only.
pub(super) fn duplicates(story: &Story<'_>) -> Judgement {
    if story.runs.is_empty() {
        return Judgement::not_judged(Rule::Duplicates, "nothing was started");
    }
    let mut judgement = Judgement::new(Rule::Duplicates);
    if story.evidence.redelivers {
        judgement.missing("which messages the source had a reason to hand over again");
        return judgement;
    }
    for (&id, message) in &story.messages {
        let runs: Vec<_> = story.runs_of(message).collect();
        for pair in runs.windows(2) {
            if let Some((at, what)) = unlawful_repeat(story, message, pair[0], pair[1]) {
                judgement.broken(story, message.key, [id], at, what);
            }
        }
        if let Some((at, what)) = settled_twice(story, id, message) {
            judgement.broken(story, message.key, [id], at, what);
        }
    }
    judgement
}

/// Returns why `run` should not have followed `before`, if so, and the events that show it.
fn unlawful_repeat(
    story: &Story<'_>,
    message: &Message,
    before: &Run,
    run: &Run,
) -> Option<(Vec<usize>, String)> {
    let mut breaks = story
        .breaks_between(before.start, run.start)
        .iter()
        .filter(|b| b.concerns(before.token))
        .peekable();
    if let Some(b) = breaks.peek() {
        let first = b.at;
        let lawful = breaks.any(|b| message.is_unconfirmed_at(b.at));
        return (!lawful).then(|| {
            let at = message
                .confirmed
                .into_iter()
                .chain([first, run.start])
                .collect();
            (
                at,
                "was started again, though its ack was confirmed before the break".to_owned(),
            )
        });
    }
    let in_between = |positions: &[usize]| {
        positions
            .iter()
            .copied()
            .find(|&at| before.start < at && at < run.start)
    };
    if let Some(done) = in_between(&message.done) {
        return Some((
            vec![done, run.start],
            "was started again after it was done".to_owned(),
        ));
    }
    if let Some(dead) = in_between(&message.dead) {
        let what = "was started again after its dead letter";
        return Some((vec![dead, run.start], what.to_owned()));
    }
    if run.attempt <= before.attempt && !story.evidence.resumed.contains(&run.id) {
        let what = format!(
            "attempt {} was started after attempt {}",
            run.attempt, before.attempt
        );
        return Some((vec![before.start, run.start], what));
    }
    None
}

/// Returns two settlements of one message, without a break between them that explains the second.
fn settled_twice(story: &Story<'_>, id: Id, message: &Message) -> Option<(Vec<usize>, String)> {
    let done = message.done.first().copied();
    let dead = message.dead.first().copied();
    let coalesced = message.coalesced.map(|(at, _)| at);
    if let (Some(done), Some(dead)) = (done, dead)
        && story
            .breaks_between(done.min(dead), done.max(dead))
            .is_empty()
    {
        return Some((
            vec![done, dead],
            "settled twice: done and dead-lettered".to_owned(),
        ));
    }
    if !story.breaks.is_empty() {
        return None;
    }
    let named = |ids: &Option<std::collections::BTreeSet<Id>>| {
        ids.as_ref().is_some_and(|ids| ids.contains(&id))
    };
    let excused = [
        ("handed back", story.evidence.handed_back.contains(&id)),
        ("discarded", story.evidence.discarded.contains(&id)),
        ("a duplicate", named(&story.evidence.duplicates)),
        ("expired", named(&story.evidence.expired)),
    ];
    let mut ways: Vec<(&str, Option<usize>)> = Vec::new();
    ways.extend(done.map(|at| ("done", Some(at))));
    ways.extend(dead.map(|at| ("dead-lettered", Some(at))));
    ways.extend(coalesced.map(|at| ("coalesced", Some(at))));
    ways.extend(
        excused
            .into_iter()
            .filter(|(_, is)| *is)
            .map(|(way, _)| (way, None)),
    );
    (ways.len() > 1).then(|| {
        let names: Vec<_> = ways.iter().map(|(way, _)| *way).collect();
        let at = ways.iter().filter_map(|(_, at)| *at).collect();
        (at, format!("settled twice: {}", names.join(" and ")))
    })
}
