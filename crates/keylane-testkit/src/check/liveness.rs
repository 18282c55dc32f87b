//! I11: work ends, and a lane waits only for a reason.

use std::time::Duration;

use tokio::time::Instant;

use super::judgement::Judgement;
use super::rule::Rule;
use super::story::{Message, Run, Story};
use crate::events::{Id, Key, Outcome};

/// How long a lane may wait without a reason.
const PATIENCE: Duration = Duration::from_secs(1);

/// A span of time without its end.
type Span = (Instant, Instant);

/// I11: after the last fault all work ends in time, and no lane waits without a reason for longer
/// than [`PATIENCE`]. Reasons are: all permits are taken, the backoff after a failed attempt, a
/// dead letter that is not yet durable, and the reasons given as evidence. Waiting is judged only
/// after the last fault.
pub(super) fn liveness(story: &Story<'_>) -> Judgement {
    if !story.messages.values().any(Message::is_accepted) {
        return Judgement::not_judged(Rule::Liveness, "nothing was accepted");
    }
    let evidence = story.evidence;
    if evidence.faults.is_none() && evidence.concurrency.is_none() {
        return Judgement::not_judged(Rule::Liveness, "no time limit and no concurrency");
    }
    let mut judgement = Judgement::new(Rule::Liveness);
    work_ends(story, &mut judgement);
    if evidence.concurrency.is_none() {
        judgement.missing("the concurrency");
    } else if evidence.faults.is_none() && !story.breaks.is_empty() {
        judgement.missing("when the faults stopped");
    } else {
        no_key_waits(story, &mut judgement);
    }
    judgement
}

fn work_ends(story: &Story<'_>, judgement: &mut Judgement) {
    let Some(faults) = story.evidence.faults else {
        judgement.missing("the time within which work must end");
        return;
    };
    for (&id, message) in &story.messages {
        let Some(sent) = message.sent.filter(|_| message.is_accepted()) else {
            continue;
        };
        let deadline = story.time(sent).max(faults.stopped) + faults.within;
        let ended = match work_ended(story, id, message) {
            Some(ended) => Some(ended),
            None if story.is_excused(id) => continue,
            None => None,
        };
        if ended.is_none() && story.last_time().is_none_or(|until| until <= deadline) {
            judgement.missing("the time after the history's last event");
            continue;
        }
        if ended.is_none_or(|ended| story.time(ended) > deadline) {
            let within = faults.within;
            let what = match ended {
                Some(_) => format!("its work ended later than {within:?} after the faults"),
                None => format!("its work did not end within {within:?} of the faults' end"),
            };
            let at = [sent].into_iter().chain(ended).collect();
            judgement.broken(story, message.key, [id], at, what);
        }
    }
}

/// Returns when the last work on a message ended. `None` if some of it never ended.
fn work_ended(story: &Story<'_>, id: Id, message: &Message) -> Option<usize> {
    let mut ended = story.settled_at(id)?;
    for run in story.runs_of(message) {
        ended = ended.max(run.end?);
    }
    Some(message.dead.iter().copied().fold(ended, usize::max))
}

fn no_key_waits(story: &Story<'_>, judgement: &mut Judgement) {
    let Some(last_time) = story.last_time() else {
        return;
    };
    let free = times_with_a_free_permit(story, last_time);
    let mut runs_by_key = story.runs_by_key();
    for (&key, ids) in &story.keys {
        let runs = runs_by_key.remove(&key).unwrap_or_default();
        let mut before: Option<&Run> = None;
        for run in &runs {
            if let Some(sent) = story.messages[&run.id].sent {
                let gap = Gap {
                    key,
                    id: run.id,
                    sent,
                    before,
                    until: story.time(run.start),
                };
                judge_gap(story, judgement, &free, &gap, Some(run.start));
            }
            before = Some(run);
        }
        if before.is_none_or(|run| run.end.is_some())
            && let Some((id, sent)) = first_left(story, ids)
        {
            let gap = Gap {
                key,
                id,
                sent,
                before,
                until: last_time,
            };
            judge_gap(story, judgement, &free, &gap, None);
        }
    }
}

/// A time in which a lane had a message and no attempt ran.
#[derive(Debug)]
struct Gap<'a> {
    key: Key,
    /// The message at the head.
    id: Id,
    sent: usize,
    /// The attempt that ran last.
    before: Option<&'a Run>,
    until: Instant,
}

/// Returns the first unsettled message of a key, and where it was sent.
fn first_left(story: &Story<'_>, ids: &[Id]) -> Option<(Id, usize)> {
    let mut left = ids.iter().filter(|id| story.messages[id].is_accepted());
    let &id = left.find(|&&id| !story.is_settled(id))?;
    Some((id, story.messages[&id].sent?))
}

fn judge_gap(
    story: &Story<'_>,
    judgement: &mut Judgement,
    free: &[Span],
    gap: &Gap<'_>,
    started: Option<usize>,
) {
    // I3 judges an attempt that overlaps the next one.
    let left = match gap.before {
        Some(run) => match run.end {
            Some(end) => Some(end),
            None => return,
        },
        None => None,
    };
    let mut from = story.time(gap.sent);
    from = from.max(left.map_or(from, |left| story.time(left)));
    from = from.max(story.evidence.faults.map_or(from, |faults| faults.stopped));
    if from + PATIENCE >= gap.until {
        return;
    }
    let excuses = excuses(story, gap);
    let longest = longest_unexcused((from, gap.until), free, &excuses);
    if longest > PATIENCE {
        let what = format!("waited for {longest:?} without a reason");
        let at = [gap.sent].into_iter().chain(left).chain(started).collect();
        judgement.broken(story, Some(gap.key), [gap.id], at, what);
    }
}

/// Returns the times in which this lane had a reason of its own to wait.
fn excuses(story: &Story<'_>, gap: &Gap<'_>) -> Vec<Span> {
    let evidence = story.evidence;
    let given = evidence.reasons.iter();
    let mut excuses: Vec<Span> = given
        .filter(|reason| reason.key.is_none_or(|key| key == gap.key))
        .map(|reason| (reason.from, reason.until))
        .collect();
    if let Some(run) = gap.before
        && let Some(end) = run.end
        && run.outcome != Some(Outcome::Ok)
    {
        let end_time = story.time(end);
        excuses.push((end_time, end_time + evidence.backoff));
        let dead = story.messages[&run.id]
            .dead
            .iter()
            .find(|&&dead| dead > end);
        excuses.extend(dead.map(|&dead| (end_time, story.time(dead))));
    }
    excuses.sort_unstable();
    excuses
}

/// Returns the longest time within `span` that is in `free` and in none of the sorted `excuses`.
fn longest_unexcused(span: Span, free: &[Span], excuses: &[Span]) -> Duration {
    let mut longest = Duration::ZERO;
    let first = free.partition_point(|&(_, until)| until <= span.0);
    for &(from, until) in free[first..].iter().take_while(|&&(from, _)| from < span.1) {
        let (mut from, until) = (from.max(span.0), until.min(span.1));
        for &(excused_from, excused_until) in excuses {
            if excused_from > from {
                longest = longest.max(excused_from.min(until).saturating_duration_since(from));
            }
            from = from.max(excused_until);
        }
        longest = longest.max(until.saturating_duration_since(from));
    }
    longest
}

/// Returns the times in which fewer handlers ran than may run. Spans that touch are joined: a
/// permit that is taken and given back at one instant was free all the time.
fn times_with_a_free_permit(story: &Story<'_>, last_time: Instant) -> Vec<Span> {
    let concurrency = story.evidence.concurrency.unwrap_or(usize::MAX);
    let mut changes: Vec<(usize, bool)> = Vec::new();
    for run in &story.runs {
        changes.push((run.start, true));
        changes.extend(run.end.map(|end| (end, false)));
    }
    changes.sort_unstable();
    let mut spans: Vec<Span> = Vec::new();
    let mut in_flight = 0_usize;
    let mut free_since = story.records.first().map(|record| record.at);
    for (at, starts) in changes {
        in_flight = if starts { in_flight + 1 } else { in_flight - 1 };
        let time = story.time(at);
        if in_flight < concurrency {
            free_since.get_or_insert(time);
        } else if let Some(since) = free_since.take() {
            push_span(&mut spans, (since, time));
        }
    }
    if let Some(since) = free_since {
        push_span(&mut spans, (since, last_time));
    }
    spans
}

fn push_span(spans: &mut Vec<Span>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.1 >= span.0 => last.1 = last.1.max(span.1),
        _ => spans.push(span),
    }
}
