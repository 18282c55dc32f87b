//! I8: dead letters.

use super::judgement::Judgement;
use super::rule::Rule;
use super::story::{Message, Run, Story};
use crate::events::{Id, Outcome};

/// I8: a message gets one dead letter, after exactly the allowed attempts, and the letter is
/// durable before the next message of the key starts. After a break that left the letter's ack
/// unconfirmed there may be a second letter, as there may be a second handling.
pub(super) fn dead_letters(story: &Story<'_>) -> Judgement {
    let max = story.evidence.max_attempts;
    let has_letters = story
        .messages
        .values()
        .any(|message| !message.dead.is_empty());
    if !has_letters && max.is_none() {
        return Judgement::not_judged(Rule::DeadLetters, "no dead letters and no attempt limit");
    }
    let mut judgement = Judgement::new(Rule::DeadLetters);
    if !has_letters {
        judgement.missing("any dead letter");
    }
    if max.is_none() {
        judgement.missing("the attempt limit");
    }
    let runs_by_key = story.runs_by_key();
    for (&id, message) in &story.messages {
        let mut broken = |at: Vec<usize>, what: String| {
            judgement.broken(story, message.key, [id], at, what);
        };
        for (at, what) in unlawful_attempts(story, id, message) {
            broken(at, what);
        }
        for pair in message.dead.windows(2) {
            let breaks = story.breaks_between(pair[0], pair[1]);
            if !breaks.iter().any(|b| message.is_unconfirmed_at(b.at)) {
                broken(pair.to_vec(), "has two dead letters".to_owned());
            }
        }
        let neighbours = message.key.and_then(|key| runs_by_key.get(&key));
        let neighbours = neighbours.map_or(&[][..], Vec::as_slice);
        for &dead in &message.dead {
            if let Some((at, what)) = unlawful_letter(story, message, dead, neighbours) {
                broken(at, what);
            }
        }
    }
    judgement
}

/// Attempts beyond the limit, or after an error that must not be retried.
fn unlawful_attempts(story: &Story<'_>, id: Id, message: &Message) -> Vec<(Vec<usize>, String)> {
    if story.evidence.resumed.contains(&id) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let runs: Vec<_> = story.runs_of(message).collect();
    for run in &runs {
        if story
            .evidence
            .max_attempts
            .is_some_and(|max| run.attempt > max)
        {
            let what = format!("attempt {} is past the limit", run.attempt);
            found.push((vec![run.start], what));
        }
    }
    for pair in runs.windows(2) {
        let broke = !story
            .breaks_between(pair[0].start, pair[1].start)
            .is_empty();
        if pair[0].outcome == Some(Outcome::Fatal) && !broke {
            let at = pair[0].end.into_iter().chain([pair[1].start]).collect();
            found.push((at, "was retried after an error that must not be".to_owned()));
        }
    }
    found
}

/// Why a letter at `dead` is wrong. `neighbours` are the attempts of the key.
fn unlawful_letter(
    story: &Story<'_>,
    message: &Message,
    dead: usize,
    neighbours: &[&Run],
) -> Option<(Vec<usize>, String)> {
    let evidence = story.evidence;
    let Some(last) = story.runs_of(message).filter(|run| run.start < dead).last() else {
        let what = "was dead-lettered without an attempt".to_owned();
        return (!evidence.overflow_letters).then_some((vec![dead], what));
    };
    let Some(end) = last.end.filter(|&end| end < dead) else {
        let what = format!("was dead-lettered while attempt {} ran", last.attempt);
        return Some((vec![last.start, dead], what));
    };
    let max = evidence.max_attempts.unwrap_or(last.attempt);
    let gave_up = match last.outcome {
        Some(Outcome::Ok) => return Some((vec![end, dead], "was dead-lettered, but done".into())),
        Some(Outcome::Fatal) => true,
        _ => last.attempt == max || (last.attempt < max && evidence.early_letters),
    };
    if !gave_up {
        let what = format!("was dead-lettered after attempt {} of {max}", last.attempt);
        return Some((vec![end, dead], what));
    }
    let first = neighbours.partition_point(|run| run.start < end);
    let overtaker = neighbours[first..]
        .iter()
        .find(|run| run.start < dead && run.id != last.id)?;
    let what = format!(
        "its key went on with id {} before the letter was durable",
        overtaker.id
    );
    Some((vec![end, overtaker.start, dead], what))
}

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;
    use crate::check::evidence::Evidence;

    fn two() -> Planted {
        Planted::new().sent(1, [(1, 1), (2, 2)])
    }

    fn twice() -> Evidence {
        Evidence::new().max_attempts(2)
    }

    #[test]
    fn i8_a_letter_comes_after_exactly_the_attempts_allowed() {
        let good = two().failed(1, 1).failed(1, 2).dead(1).done(2);
        good.holds(&twice(), Rule::DeadLetters);
        good.leaves_in_part(&Evidence::new(), Rule::DeadLetters, "attempt limit");
        two()
            .done(1)
            .leaves_in_part(&twice(), Rule::DeadLetters, "any dead letter");
        two()
            .done(1)
            .leaves_unjudged(&Evidence::new(), Rule::DeadLetters);

        let early = two().failed(1, 1).dead(1);
        early.breaks(&twice(), Rule::DeadLetters, "after attempt 1 of 2", &[1]);
        early.holds(&twice().early_letters(), Rule::DeadLetters);
        let late = two().failed(1, 1).failed(1, 2).failed(1, 3).dead(1);
        late.breaks(
            &twice(),
            Rule::DeadLetters,
            "attempt 3 is past the limit",
            &[1],
        );
        late.breaks(&twice(), Rule::DeadLetters, "after attempt 3 of 2", &[1]);
        let resumed = two().failed(1, 1).failed(1, 2).failed(1, 3).done(2);
        resumed.breaks(&twice(), Rule::DeadLetters, "past the limit", &[1]);
        resumed.leaves_in_part(&twice().resumed([1]), Rule::DeadLetters, "any dead letter");
    }

    #[test]
    fn i8_an_error_that_must_not_be_retried_is_not() {
        let fatal = two().start(1, 1).end(1, 1, Outcome::Fatal);
        fatal.clone().dead(1).holds(&twice(), Rule::DeadLetters);
        let bad = fatal.clone().start(1, 2).ok(1, 2);
        bad.breaks(&twice(), Rule::DeadLetters, "must not be", &[1]);
        let good = fatal.crash(0).done(1);
        good.leaves_in_part(&twice(), Rule::DeadLetters, "any dead letter");
    }

    #[test]
    fn i8_a_letter_without_an_attempt_is_an_overflow() {
        let overflow = two().dead(2);
        overflow.breaks(&twice(), Rule::DeadLetters, "without an attempt", &[2]);
        overflow.holds(&twice().overflow_letters(), Rule::DeadLetters);
    }

    #[test]
    fn i8_a_letter_waits_for_the_end() {
        let bad = two().failed(1, 1).start(1, 2).dead(1).error(1, 2);
        bad.breaks(&twice(), Rule::DeadLetters, "while attempt 2 ran", &[1]);
        let bad = two().done(1).dead(1);
        let also = [Rule::Duplicates];
        bad.breaks_among(&twice(), Rule::DeadLetters, "but done", &[1], &also);
    }

    #[test]
    fn i8_one_letter_per_message() {
        let once = two().failed(1, 1).failed(1, 2).dead(1);
        let bad = once.clone().dead(1);
        bad.breaks(&twice(), Rule::DeadLetters, "two dead letters", &[1]);
        let again = |p: Planted| p.crash(0).failed(1, 1).failed(1, 2).dead(1);
        again(once.clone().ack_req(1)).holds(&twice(), Rule::DeadLetters);
        let bad = again(once.acked(1));
        let also = [Rule::Duplicates];
        bad.breaks_among(&twice(), Rule::DeadLetters, "two dead letters", &[1], &also);
    }

    #[test]
    fn i8_the_key_goes_on_after_the_letter() {
        let bad = two().failed(1, 1).failed(1, 2).done(2).dead(1);
        bad.breaks(&twice(), Rule::DeadLetters, "went on with id 2", &[1]);
        let bad = two().failed(1, 1).failed(1, 2).start(2, 1).dead(1).ok(2, 1);
        bad.breaks(&twice(), Rule::DeadLetters, "went on with id 2", &[1]);
        let good = two()
            .sent(2, [(1, 9)])
            .failed(1, 1)
            .failed(1, 2)
            .done(9)
            .dead(1)
            .done(2);
        good.holds(&twice(), Rule::DeadLetters);
    }
}
