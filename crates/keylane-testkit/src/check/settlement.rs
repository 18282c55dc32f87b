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

/// Why `run` should not have followed `before`, if so, and the events that show it.
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

/// Two settlements of one message, without a break between them that explains the second.
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

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;
    use crate::check::evidence::Evidence;
    use crate::events::Outcome;

    fn one() -> Planted {
        Planted::new().sent(1, [(1, 1)])
    }

    fn two() -> Planted {
        Planted::new().sent(1, [(1, 1), (2, 2)])
    }

    #[test]
    fn i1_a_message_that_never_starts_is_lost() {
        let bad = two().done(1);
        bad.breaks(&bad.whole(), Rule::NoLoss, "never started", &[2]);
        bad.leaves_unjudged(&Evidence::new(), Rule::NoLoss);
        let good = bad.done(2);
        good.holds(&good.whole(), Rule::NoLoss);
    }

    #[test]
    fn i1_a_message_that_failed_and_is_forgotten_is_lost() {
        let bad = one().failed(1, 1).failed(1, 2);
        bad.breaks(&bad.whole(), Rule::NoLoss, "after attempt 2", &[1]);
        bad.holds(&bad.whole().discarded([1]), Rule::NoLoss);
        bad.holds(&bad.whole().handed_back([1]), Rule::NoLoss);
        let good = bad.clone().start(1, 3).ok(1, 3);
        good.holds(&good.whole(), Rule::NoLoss);
        let good = bad.dead(1);
        good.holds(&good.whole(), Rule::NoLoss);
    }

    #[test]
    fn i1_a_message_coalesced_into_a_lost_one_is_lost() {
        let bad = Planted::new()
            .sent(1, [(1, 1), (2, 2)])
            .answered(1, 3, 3, Acceptance::Unknown)
            .coalesced(1, 2)
            .coalesced(2, 3);
        bad.breaks(&bad.whole(), Rule::NoLoss, "coalesced into id 2", &[1]);
        bad.holds(&bad.whole().handed_back([3]), Rule::NoLoss);
        let good = bad.done(3);
        good.holds(&good.whole(), Rule::NoLoss);
        let circle = two().coalesced(1, 2).coalesced(2, 1);
        circle.breaks(&circle.whole(), Rule::NoLoss, "coalesced into id 1", &[2]);
    }

    #[test]
    fn i1_refused_and_unknown_sends_may_vanish() {
        let good = one().done(1).answered(1, 2, 2, Acceptance::Fail).answered(
            1,
            3,
            3,
            Acceptance::Unknown,
        );
        good.holds(&good.whole(), Rule::NoLoss);
        let nothing = Planted::new().answered(1, 1, 1, Acceptance::Fail);
        nothing.leaves_unjudged(&nothing.whole(), Rule::NoLoss);
    }

    #[test]
    fn i2_what_was_never_sent_is_invented() {
        let bad = one().done(1).done(7);
        bad.breaks(&Evidence::new(), Rule::NoInvention, "never sent", &[7]);
        let good = bad.answered(2, 1, 7, Acceptance::Unknown);
        good.holds(&Evidence::new(), Rule::NoInvention);
        let bad = one().coalesced(1, 9);
        bad.breaks(&Evidence::new(), Rule::NoInvention, "never sent", &[9]);
        Planted::new().leaves_unjudged(&Evidence::new(), Rule::NoInvention);
    }

    #[test]
    fn i2_what_was_refused_is_not_taken_up() {
        let refused = Planted::new().answered(1, 1, 1, Acceptance::Fail);
        refused.holds(&Evidence::new(), Rule::NoInvention);
        let bad = refused.clone().done(1);
        bad.breaks(&Evidence::new(), Rule::NoInvention, "refused", &[1]);
        let good = refused.sent(1, [(2, 1)]).done(1);
        good.holds(&Evidence::new(), Rule::NoInvention);
    }

    #[test]
    fn i2_an_id_is_accepted_once() {
        let good = one().answered(1, 2, 1, Acceptance::Fail);
        good.holds(&Evidence::new(), Rule::NoInvention);
        let bad = one().answered(1, 2, 1, Acceptance::Unknown);
        bad.breaks(
            &Evidence::new(),
            Rule::NoInvention,
            "twice under one id",
            &[1],
        );
    }

    #[test]
    fn i2_attempts_are_counted_without_holes() {
        one()
            .failed(1, 1)
            .failed(1, 2)
            .holds(&Evidence::new(), Rule::NoInvention);
        let bad = one().failed(1, 1).failed(1, 3);
        bad.breaks(
            &Evidence::new(),
            Rule::NoInvention,
            "attempt 3 began, after 1",
            &[1],
        );
        one()
            .failed(1, 2)
            .breaks(&Evidence::new(), Rule::NoInvention, "attempt 2", &[1]);
        one()
            .failed(1, 0)
            .breaks(&Evidence::new(), Rule::NoInvention, "attempt 0", &[1]);
    }

    #[test]
    fn i2_what_ends_has_begun() {
        let bad = one().done(1).ok(1, 1);
        bad.breaks(
            &Evidence::new(),
            Rule::NoInvention,
            "ended, but did not run",
            &[1],
        );
        one()
            .start(1, 1)
            .ok(1, 2)
            .breaks(&Evidence::new(), Rule::NoInvention, "attempt 2", &[1]);
        // When a runtime is dropped, futures that a crash had ended still report that they were
        // dropped.
        let good = one().start(1, 1).crash(0).end(1, 1, Outcome::Dropped);
        good.holds(&Evidence::new(), Rule::NoInvention);
        let bad = good.end(1, 1, Outcome::Dropped);
        bad.breaks(
            &Evidence::new(),
            Rule::NoInvention,
            "ended, but did not run",
            &[1],
        );
    }

    #[test]
    fn i5_an_ack_waits_for_the_end() {
        one().done(1).acked(1).holds(&Evidence::new(), Rule::Acks);
        one().done(1).leaves_unjudged(&Evidence::new(), Rule::Acks);
        let bad = one().start(1, 1).ack_req(1).ok(1, 1);
        bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
        let bad = one().event(Event::AckUnknown { id: 1 }).done(1);
        bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
        let bad = one().event(Event::AckOk { id: 1 }).done(1);
        bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
    }

    #[test]
    fn i5_an_ack_waits_for_the_letter_to_be_durable() {
        one()
            .failed(1, 1)
            .dead(1)
            .acked(1)
            .holds(&Evidence::new(), Rule::Acks);
        let bad = one().failed(1, 1).acked(1).dead(1);
        bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
        let failed = one().failed(1, 1).acked(1);
        failed.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
        failed.holds(&Evidence::new().discarded([1]), Rule::Acks);
        let handed_back = Evidence::new().handed_back([1]);
        failed.breaks(&handed_back, Rule::Acks, "handed back", &[1]);
    }

    #[test]
    fn i5_a_coalesced_message_is_acked_with_its_stand_in() {
        two()
            .coalesced(1, 2)
            .done(2)
            .acked(1)
            .acked(2)
            .holds(&Evidence::new(), Rule::Acks);
        let bad = two().coalesced(1, 2).acked(1).done(2);
        bad.breaks(&Evidence::new(), Rule::Acks, "before it was done", &[1]);
    }

    #[test]
    fn i7_no_second_handling_without_a_crash() {
        two()
            .failed(1, 1)
            .start(1, 2)
            .ok(1, 2)
            .done(2)
            .holds(&Evidence::new(), Rule::Duplicates);
        let bad = one().done(1).start(1, 2).ok(1, 2);
        bad.breaks(
            &Evidence::new(),
            Rule::Duplicates,
            "after it was done",
            &[1],
        );
        let bad = one().failed(1, 1).dead(1).failed(1, 2);
        bad.breaks(
            &Evidence::new(),
            Rule::Duplicates,
            "after its dead letter",
            &[1],
        );
        let bad = one().failed(1, 1).failed(1, 1);
        bad.breaks(
            &Evidence::new(),
            Rule::Duplicates,
            "attempt 1 was started after",
            &[1],
        );
        bad.holds(&Evidence::new().resumed([1]), Rule::Duplicates);
        one().leaves_unjudged(&Evidence::new(), Rule::Duplicates);
    }

    #[test]
    fn i7_a_crash_repeats_only_what_was_not_confirmed() {
        one()
            .start(1, 1)
            .crash(0)
            .done(1)
            .holds(&Evidence::new(), Rule::Duplicates);
        one()
            .done(1)
            .crash(0)
            .done(1)
            .holds(&Evidence::new(), Rule::Duplicates);
        one()
            .done(1)
            .ack_req(1)
            .crash(0)
            .done(1)
            .holds(&Evidence::new(), Rule::Duplicates);
        one()
            .done(1)
            .ack_req(1)
            .revoke()
            .done(1)
            .holds(&Evidence::new(), Rule::Duplicates);
        let bad = one().done(1).acked(1).crash(0).done(1);
        bad.breaks(
            &Evidence::new(),
            Rule::Duplicates,
            "its ack was confirmed",
            &[1],
        );
        let bad = one().done(1).acked(1).revoke().done(1);
        bad.breaks(
            &Evidence::new(),
            Rule::Duplicates,
            "its ack was confirmed",
            &[1],
        );
        // The first of the two breaks may be the reason for the late second handling.
        let good = one()
            .done(1)
            .ack_req(1)
            .crash(0)
            .event(Event::AckOk { id: 1 })
            .crash(0)
            .done(1);
        good.holds(&Evidence::new(), Rule::Duplicates);
        // Once per break, and only for a break of the process that ran the attempt.
        let bad = one().done(1).crash(0).done(1).done(1);
        bad.breaks(
            &Evidence::new(),
            Rule::Duplicates,
            "after it was done",
            &[1],
        );
        let bad = one().start_under(5, 1, 1).ok(1, 1).crash(4).done(1);
        bad.breaks(
            &Evidence::new(),
            Rule::Duplicates,
            "after it was done",
            &[1],
        );
    }

    #[test]
    fn i7_a_message_settles_in_one_way() {
        let bad = one().done(1);
        bad.breaks(
            &Evidence::new().handed_back([1]),
            Rule::Duplicates,
            "done and handed",
            &[1],
        );
        bad.breaks(
            &Evidence::new().discarded([1]),
            Rule::Duplicates,
            "done and discarded",
            &[1],
        );
        let bad = two().coalesced(1, 2).done(1).done(2);
        bad.breaks(
            &Evidence::new(),
            Rule::Duplicates,
            "done and coalesced",
            &[1],
        );
        let bad = one().done(1).dead(1);
        let evidence = Evidence::new();
        let text = "done and dead-lettered";
        bad.breaks_among(
            &evidence,
            Rule::Duplicates,
            text,
            &[1],
            &[Rule::DeadLetters],
        );
        let bad = one().failed(1, 1).dead(1);
        let text = "dead-lettered and handed back";
        bad.breaks(
            &Evidence::new().handed_back([1]),
            Rule::Duplicates,
            text,
            &[1],
        );
        // An attempt that an abort interrupted may be handed back. A message that gave up may be
        // discarded.
        let dropped = one().start(1, 1).end(1, 1, Outcome::Dropped);
        dropped.holds(&Evidence::new().handed_back([1]), Rule::Duplicates);
        one()
            .failed(1, 1)
            .holds(&Evidence::new().discarded([1]), Rule::Duplicates);
    }
}
