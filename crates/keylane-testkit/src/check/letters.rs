//! I8: dead letters.

use std::ops::Range;

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

/// Returns whether a break in this range came before the end of the message was durable.
fn is_unknown_after(story: &Story<'_>, message: &Message, range: Range<usize>) -> bool {
    let breaks = story.breaks_between(range.start, range.end);
    breaks.iter().any(|b| message.is_unconfirmed_at(b.at))
}

/// Returns why a letter at `dead` is wrong. `neighbours` are the attempts of the key.
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
        // After a break the next process knows only that the last attempt had begun.
        Some(Outcome::Ok) if last.attempt == max && is_unknown_after(story, message, end..dead) => {
            return None;
        }
        Some(Outcome::Ok) => return Some((vec![end, dead], "was dead-lettered, but done".into())),
        Some(Outcome::Fatal) => true,
        _ => last.attempt == max || (last.attempt < max && evidence.early_letters),
    };
    if !gave_up {
        let what = format!("was dead-lettered after attempt {} of {max}", last.attempt);
        return Some((vec![end, dead], what));
    }
    let first = neighbours.partition_point(|run| run.start < end);
    // Messages before it in the key may come again after a crash.
    let is_behind = |run: &Run| story.messages[&run.id].seq > message.seq;
    let overtaker = neighbours[first..]
        .iter()
        .find(|run| run.start < dead && run.id != last.id && is_behind(run))?;
    let what = format!(
        "its key went on with id {} before the letter was durable",
        overtaker.id
    );
    Some((vec![end, overtaker.start, dead], what))
}
