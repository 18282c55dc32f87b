//! I3, I4: one at a time, in order.

use super::judgement::Judgement;
use super::rule::Rule;
use super::story::{Message, Run, Story};
use crate::events::{Id, Key};

/// I3: attempts of one key do not overlap. They may under different tokens, if the sink refuses all
/// writes of the older one from then on.
pub(super) fn exclusion(story: &Story<'_>) -> Judgement {
    if story.runs.is_empty() {
        return Judgement::not_judged(Rule::Exclusion, "nothing was started");
    }
    let mut judgement = Judgement::new(Rule::Exclusion);
    for (key, runs) in story.runs_by_key() {
        let mut open: Vec<&Run> = Vec::new();
        for run in runs {
            open.retain(|other| other.is_open_at(run.start));
            for other in &open {
                overlap(story, &mut judgement, key, other, run);
            }
            open.push(run);
        }
    }
    judgement
}

fn overlap(story: &Story<'_>, judgement: &mut Judgement, key: Key, first: &Run, second: &Run) {
    let ids = vec![first.id, second.id];
    let at = vec![first.start, second.start];
    if first.token == second.token {
        let what = "an attempt started while another of its key ran".to_owned();
        judgement.broken(story, key, ids, at, what);
        return;
    }
    if story.sink_writes.is_empty() {
        judgement.missing(format!(
            "sink writes, while two tokens ran at once on key {key}"
        ));
        return;
    }
    let older = first.token.min(second.token);
    let taken = story
        .sink_writes
        .iter()
        .find(|w| w.at > second.start && w.key == key && w.token == older && w.accepted);
    if let Some(write) = taken {
        let what = format!("a write under the older token {older} was accepted in an overlap");
        let at = at.into_iter().chain([write.at]).collect();
        judgement.broken(story, key, ids, at, what);
    }
}

/// I4: first starts of a key follow the order of acceptance, and a retry comes before the messages
/// behind it. After a break a key may go back to the first un-acked message.
pub(super) fn order(story: &Story<'_>) -> Judgement {
    if story.runs.is_empty() {
        return Judgement::not_judged(Rule::Order, "nothing was started");
    }
    let mut judgement = Judgement::new(Rule::Order);
    for (key, runs) in story.runs_by_key() {
        for pair in runs.windows(2) {
            if let Some((id, what)) = disorder(story, key, pair[0], pair[1]) {
                let ids: Vec<_> = [pair[0].id, pair[1].id].into_iter().chain(id).collect();
                let at = vec![pair[0].start, pair[1].start];
                judgement.broken(story, key, ids, at, what);
            }
        }
    }
    judgement
}

/// Why `run` should not have followed `before` on their key, and which other message shows it.
fn disorder(story: &Story<'_>, key: Key, before: &Run, run: &Run) -> Option<(Option<Id>, String)> {
    if run.id == before.id {
        return None;
    }
    let (last, next) = (&story.messages[&before.id], &story.messages[&run.id]);
    let replaced = last.coalesced.is_some_and(|(_, into)| into == run.id);
    let goes_on = next.seq > last.seq || (next.seq == last.seq && replaced);
    let mut breaks = story
        .breaks_between(before.start, run.start)
        .iter()
        .filter(|b| b.concerns(before.token));
    if goes_on {
        // A message that a crash interrupted must come again before the messages behind it. A
        // revoke interrupts no attempt.
        let crash = breaks.find(|b| b.epoch.is_some())?;
        let skipped = first_waiting(story, key, crash.at, run.start)?;
        return (story.messages[&skipped].seq < next.seq).then(|| {
            (
                Some(skipped),
                format!("went on after a crash past id {skipped}, which is un-acked"),
            )
        });
    }
    let Some(b) = breaks.next() else {
        return Some((
            None,
            format!("seq {} was started after seq {}", next.seq, last.seq),
        ));
    };
    if !next.is_unconfirmed_at(b.at) {
        return Some((None, "went back past the first un-acked message".to_owned()));
    }
    let skipped = first_waiting(story, key, b.at, run.start)?;
    (story.messages[&skipped].seq < next.seq).then(|| {
        (
            Some(skipped),
            format!("went back, but not as far as id {skipped}, which is un-acked"),
        )
    })
}

/// The first message of a key that was accepted before the break at `since` and not settled by
/// `until`. It must come first.
fn first_waiting(story: &Story<'_>, key: Key, since: usize, until: usize) -> Option<Id> {
    let waits = |message: &Message, id: Id| {
        message.is_accepted()
            && message.sent.is_some_and(|sent| sent < since)
            && message.coalesced.is_none()
            && story.settled_at(id).is_none_or(|settled| settled > until)
            && !story.is_excused(id)
    };
    story
        .keys
        .get(&key)?
        .iter()
        .copied()
        .find(|&id| waits(&story.messages[&id], id))
}

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;
    use crate::check::evidence::Evidence;
    use crate::events::{Acceptance, Outcome};

    fn three() -> Planted {
        Planted::new().sent(1, [(1, 1), (2, 2), (3, 3)])
    }

    #[test]
    fn i3_attempts_of_one_key_do_not_overlap() {
        three()
            .start(1, 1)
            .ok(1, 1)
            .start(2, 1)
            .holds(&Evidence::new(), Rule::Exclusion);
        let bad = three().start(1, 1).start(2, 1).ok(1, 1).ok(2, 1);
        bad.breaks(&Evidence::new(), Rule::Exclusion, "while another", &[1, 2]);
        let violations = bad.check(&Evidence::new()).expect_err("an overlap");
        assert_eq!(violations.len(), 1);
        let bad = three().start(1, 1).start(1, 2);
        bad.breaks(&Evidence::new(), Rule::Exclusion, "while another", &[1, 1]);
        three().leaves_unjudged(&Evidence::new(), Rule::Exclusion);
    }

    #[test]
    fn i3_a_timed_out_attempt_is_dropped_before_the_next() {
        let good = three().start(1, 1).end(1, 1, Outcome::Dropped).start(1, 2);
        good.holds(&Evidence::new(), Rule::Exclusion);
        let bad = three().start(1, 1).start(1, 2).end(1, 1, Outcome::Dropped);
        bad.breaks(&Evidence::new(), Rule::Exclusion, "while another", &[1, 1]);
    }

    #[test]
    fn i3_other_keys_and_keyless_messages_overlap_freely() {
        let good = three()
            .sent(2, [(1, 4)])
            .answered(None, 1, 5, Acceptance::Ok)
            .answered(None, 2, 6, Acceptance::Ok);
        let good = good.start(1, 1).start(4, 1).start(5, 1).start(6, 1);
        good.holds(&Evidence::new(), Rule::Exclusion);
    }

    #[test]
    fn i3_a_crash_ends_attempts_and_a_revoke_does_not() {
        three()
            .start(1, 1)
            .crash(0)
            .start(1, 1)
            .holds(&Evidence::new(), Rule::Exclusion);
        let bad = three().start(1, 1).revoke().start(1, 1);
        bad.breaks(&Evidence::new(), Rule::Exclusion, "while another", &[1, 1]);
        let bad = three().start_under(3, 1, 1).crash(2).start_under(3, 1, 2);
        bad.breaks(&Evidence::new(), Rule::Exclusion, "while another", &[1, 1]);
    }

    #[test]
    fn i3_two_tokens_overlap_only_if_the_older_is_refused() {
        let overlap = three()
            .start_under(1, 1, 1)
            .write(1, 1, true)
            .revoke()
            .start_under(2, 1, 1);
        let good = overlap.clone().write(1, 1, false).write(1, 2, true);
        good.holds(&Evidence::new(), Rule::Exclusion);
        let good = overlap.clone().write(9, 1, true);
        good.holds(&Evidence::new(), Rule::Exclusion);
        let bad = overlap.write(1, 1, true);
        bad.breaks(&Evidence::new(), Rule::Exclusion, "older token 1", &[1, 1]);
        let blind = three().start_under(1, 1, 1).revoke().start_under(2, 1, 1);
        blind.leaves_in_part(&Evidence::new(), Rule::Exclusion, "sink writes");
    }

    #[test]
    fn i4_first_starts_follow_acceptance() {
        let good = three().done(1).done(2).done(3);
        good.holds(&Evidence::new(), Rule::Order);
        // The second message may never start (dropped from a full lane). Other keys have no order
        // with it.
        let good = three().sent(2, [(0, 9)]).done(1).done(9).done(3);
        good.holds(&Evidence::new(), Rule::Order);
        let bad = three().done(1).done(3).done(2);
        bad.breaks(
            &Evidence::new(),
            Rule::Order,
            "seq 2 was started after seq 3",
            &[3, 2],
        );
        three().leaves_unjudged(&Evidence::new(), Rule::Order);
    }

    #[test]
    fn i4_keyless_messages_have_no_order() {
        let good = Planted::new()
            .answered(None, 1, 1, Acceptance::Ok)
            .answered(None, 2, 2, Acceptance::Ok);
        good.done(2).done(1).holds(&Evidence::new(), Rule::Order);
    }

    #[test]
    fn i4_a_retry_comes_before_anything_behind_it() {
        let good = three()
            .failed(1, 1)
            .failed(1, 2)
            .start(1, 3)
            .ok(1, 3)
            .done(2);
        good.holds(&Evidence::new(), Rule::Order);
        let bad = three().failed(1, 1).done(2).start(1, 2);
        bad.breaks(
            &Evidence::new(),
            Rule::Order,
            "seq 1 was started after seq 2",
            &[2, 1],
        );
    }

    #[test]
    fn i4_one_place_is_taken_twice_only_by_a_replacement() {
        let replaced = three().answered(1, 1, 9, Acceptance::Ok).failed(1, 1);
        replaced
            .clone()
            .coalesced(1, 9)
            .done(9)
            .done(2)
            .holds(&Evidence::new(), Rule::Order);
        let bad = replaced.done(9);
        bad.breaks(
            &Evidence::new(),
            Rule::Order,
            "seq 1 was started after seq 1",
            &[1, 9],
        );
    }

    #[test]
    fn i4_a_crash_goes_back_to_the_first_unacked() {
        let acked = three().done(1).acked(1).done(2).ack_req(2).start(3, 1);
        acked
            .clone()
            .crash(0)
            .done(2)
            .done(3)
            .holds(&Evidence::new(), Rule::Order);
        acked
            .clone()
            .revoke()
            .ok(3, 1)
            .done(2)
            .done(3)
            .holds(&Evidence::new(), Rule::Order);
        // The source may have received the requested ack.
        acked
            .clone()
            .crash(0)
            .done(3)
            .holds(&Evidence::new(), Rule::Order);
        let bad = acked.crash(0).done(1).done(2).done(3);
        let text = "past the first un-acked";
        let also = [Rule::Duplicates];
        bad.breaks_among(&Evidence::new(), Rule::Order, text, &[3, 1], &also);
    }

    #[test]
    fn i4_a_crash_skips_nothing() {
        let good = three().start(1, 1).crash(0).done(1).done(2);
        good.holds(&Evidence::new(), Rule::Order);
        let bad = three().start(1, 1).crash(0).done(2);
        bad.breaks(
            &Evidence::new(),
            Rule::Order,
            "after a crash past id 1",
            &[1, 2, 1],
        );
        let evidence = Evidence::new().handed_back([1]);
        bad.holds(&evidence, Rule::Order);
        // A process with a newer token goes on with the key.
        let good = three()
            .start_under(5, 1, 1)
            .crash(4)
            .ok(1, 1)
            .start_under(5, 2, 1);
        good.holds(&Evidence::new(), Rule::Order);
        let good = three()
            .start_under(5, 1, 1)
            .crash(4)
            .error(1, 1)
            .start_under(5, 2, 1);
        good.holds(&Evidence::new(), Rule::Order);
        let back = three()
            .start_under(5, 2, 1)
            .crash(4)
            .ok(2, 1)
            .start_under(5, 1, 1);
        back.breaks(
            &Evidence::new(),
            Rule::Order,
            "seq 1 was started after seq 2",
            &[2, 1],
        );
        // So does a consumer that learns too late that it has lost the key.
        let good = three().start(1, 1).revoke().ok(1, 1).done(2);
        good.holds(&Evidence::new(), Rule::Order);
    }

    #[test]
    fn i4_going_back_skips_nothing() {
        let far = three()
            .start(1, 1)
            .error(1, 1)
            .start(2, 1)
            .end(2, 1, Outcome::Error);
        let far = far.start(3, 1).crash(0);
        far.clone().done(1).holds(&Evidence::new(), Rule::Order);
        let bad = far.clone().done(2);
        bad.breaks(
            &Evidence::new(),
            Rule::Order,
            "not as far as id 1",
            &[3, 2, 1],
        );
        // After one break the key may go back once.
        let bad = far.done(1).done(3).done(2);
        bad.breaks_among(&Evidence::new(), Rule::Order, "after seq 3", &[3, 2], &[]);
    }
}
