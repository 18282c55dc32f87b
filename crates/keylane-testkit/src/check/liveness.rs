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

/// When the last work on a message ended. `None` if some of it never ended.
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

/// The first unsettled message of a key, and where it was sent.
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

/// The times in which this lane had a reason of its own to wait.
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

/// The longest time within `span` that is in `free` and in none of the sorted `excuses`.
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

/// The times in which fewer handlers ran than may run. Spans that touch are joined: a permit that
/// is taken and given back at one instant was free all the time.
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

#[cfg(test)]
mod tests {
    use super::super::planted::Planted;
    use super::*;
    use crate::check::evidence::Evidence;
    use crate::events::Acceptance;

    fn two() -> Planted {
        Planted::new().sent(1, [(1, 1), (2, 2)])
    }

    /// Work must end 5 s after the faults, which end at 1 s; one handler at a time.
    fn limits(planted: &Planted) -> Evidence {
        Evidence::new()
            .faults(planted.time(1000), Duration::from_secs(5))
            .concurrency(1)
    }

    #[test]
    fn i11_work_ends_in_time() {
        let slow = two().start(1, 1).at(6000).ok(1, 1).done(2);
        slow.holds(&limits(&slow).quiescent(slow.time(6000)), Rule::Liveness);
        let bad = two()
            .start(1, 1)
            .at(6000)
            .ok(1, 1)
            .start(2, 1)
            .at(6001)
            .ok(2, 1);
        bad.breaks(&limits(&bad), Rule::Liveness, "ended later than 5s", &[2]);
        // The same holds for a message that a crash brings again, although it had ended once.
        let again = two().done(1).done(2).crash(0).start(1, 1).at(6001).ok(1, 1);
        again.breaks(&limits(&again), Rule::Liveness, "ended later than 5s", &[1]);
        // A message that is sent later has the same time, counted from its send.
        let later = Planted::new()
            .at(3000)
            .sent(1, [(1, 1)])
            .start(1, 1)
            .at(8000)
            .ok(1, 1);
        later.holds(&limits(&later), Rule::Liveness);
    }

    #[test]
    fn i11_work_that_never_ends_is_late() {
        let bad = Planted::new().sent(1, [(1, 1)]).start(1, 1);
        let evidence = limits(&bad).quiescent(bad.time(6001));
        let also = [Rule::NoLoss];
        bad.breaks_among(&evidence, Rule::Liveness, "did not end", &[1], &also);
        bad.leaves_in_part(
            &limits(&bad),
            Rule::Liveness,
            "after the history's last event",
        );
        let at_the_deadline = bad.clone().at(6000).sent(9, [(1, 9)]).done(9);
        let text = "after the history's last event";
        at_the_deadline.leaves_in_part(
            &limits(&at_the_deadline).concurrency(2),
            Rule::Liveness,
            text,
        );
        let interrupted = bad.error(1, 1);
        interrupted.holds(&evidence.handed_back([1]), Rule::Liveness);
        // A second attempt that still runs counts too.
        let bad = two().done(1).done(2).crash(0).start(1, 1);
        let evidence = limits(&bad).quiescent(bad.time(6001));
        bad.breaks(&evidence, Rule::Liveness, "did not end", &[1]);
    }

    #[test]
    fn i11_a_lane_does_not_wait_while_a_permit_is_free() {
        let good = two().at(1000).done(1).at(2000).done(2);
        good.holds(&limits(&good), Rule::Liveness);
        let bad = two().at(1000).done(1).at(2001).done(2);
        bad.breaks(&limits(&bad), Rule::Liveness, "waited for 1.001s", &[2]);
        let first = two()
            .at(1000)
            .sent(2, [(1, 9)])
            .at(2001)
            .done(9)
            .done(1)
            .done(2);
        first.breaks(&limits(&first), Rule::Liveness, "waited for 1.001s", &[9]);
    }

    #[test]
    fn i11_a_lane_waits_while_all_permits_are_taken() {
        let busy = two()
            .sent(2, [(1, 9)])
            .start(9, 1)
            .at(4000)
            .ok(9, 1)
            .at(5000)
            .done(1)
            .done(2);
        busy.holds(&limits(&busy), Rule::Liveness);
        let evidence = limits(&busy).concurrency(2);
        busy.breaks(&evidence, Rule::Liveness, "waited for 4s", &[1]);
        // Taken and given back at one instant, the permit was free all the time.
        let flicker = two()
            .sent(2, [(1, 9)])
            .at(1600)
            .done(9)
            .at(2200)
            .done(1)
            .done(2);
        flicker.breaks(&limits(&flicker), Rule::Liveness, "waited for 1.2s", &[1]);
        let busy_between = two()
            .sent(2, [(1, 9)])
            .at(1600)
            .start(9, 1)
            .at(1601)
            .ok(9, 1);
        let busy_between = busy_between.at(2200).done(1).done(2);
        busy_between.holds(&limits(&busy_between), Rule::Liveness);
    }

    #[test]
    fn i11_a_lane_waits_in_backoff() {
        let retried = two()
            .at(1000)
            .failed(1, 1)
            .at(4000)
            .start(1, 2)
            .ok(1, 2)
            .done(2);
        let evidence = limits(&retried);
        retried.breaks(&evidence, Rule::Liveness, "waited for 3s", &[1]);
        let backoff = |ms| limits(&retried).backoff(Duration::from_millis(ms));
        retried.holds(&backoff(2000), Rule::Liveness);
        retried.breaks(&backoff(1999), Rule::Liveness, "waited for 1.001s", &[1]);
        // Only a failed attempt has a backoff.
        let done = two().at(1000).done(1).at(4000).done(2);
        done.breaks(&backoff(2000), Rule::Liveness, "waited for 3s", &[2]);
    }

    #[test]
    fn i11_a_lane_waits_for_its_letter() {
        let good = two()
            .at(1000)
            .failed(1, 1)
            .at(4000)
            .dead(1)
            .at(5000)
            .done(2);
        good.holds(&limits(&good), Rule::Liveness);
        let bad = two()
            .at(1000)
            .failed(1, 1)
            .at(3000)
            .dead(1)
            .at(4001)
            .done(2);
        bad.breaks(&limits(&bad), Rule::Liveness, "waited for 1.001s", &[2]);
    }

    #[test]
    fn i11_a_lane_waits_for_a_reason_given() {
        let halted = two().at(1000).done(1).at(5000).done(2);
        let reason = |key: Option<Key>, from, until| {
            limits(&halted).reason(key, halted.time(from), halted.time(until))
        };
        halted.holds(&reason(Some(1), 2000, 4000), Rule::Liveness);
        halted.holds(&reason(None, 2000, 4000), Rule::Liveness);
        let bad = reason(Some(2), 2000, 4000);
        halted.breaks(&bad, Rule::Liveness, "waited for 4s", &[2]);
        let bad = reason(Some(1), 2001, 4000);
        halted.breaks(&bad, Rule::Liveness, "waited for 1.001s", &[2]);
        let bad = reason(Some(1), 2000, 3999);
        halted.breaks(&bad, Rule::Liveness, "waited for 1.001s", &[2]);
    }

    #[test]
    fn i11_a_lane_that_is_not_taken_up_again_waits() {
        let bad = two().at(1000).done(1);
        let evidence = limits(&bad).quiescent(bad.time(2001));
        let also = [Rule::NoLoss];
        bad.breaks_among(&evidence, Rule::Liveness, "waited for 1.001s", &[2], &also);
        let bad_from_the_start = two();
        bad_from_the_start.breaks_among(&evidence, Rule::Liveness, "waited for", &[1], &also);
        // A lane whose head runs does not wait. Messages that were handed back do not wait.
        let running = two().at(1000).done(1).start(2, 1);
        let evidence = limits(&running)
            .quiescent(running.time(2001))
            .handed_back([2]);
        running.leaves_in_part(&limits(&running), Rule::Liveness, "last event");
        bad.holds(&evidence, Rule::Liveness);
    }

    #[test]
    fn i11_waiting_is_judged_after_the_faults() {
        let down = two().start(1, 1).crash(0).at(2000).done(1).done(2);
        down.holds(&limits(&down), Rule::Liveness);
        let without = Evidence::new().concurrency(1);
        down.leaves_in_part(&without, Rule::Liveness, "when the faults stopped");
        let bad = two().start(1, 1).crash(0).at(2001).done(1).done(2);
        bad.breaks(&limits(&bad), Rule::Liveness, "waited for 1.001s", &[1]);
    }

    #[test]
    fn i11_says_what_it_lacks() {
        let good = two().done(1).done(2);
        good.leaves_unjudged(&Evidence::new(), Rule::Liveness);
        good.leaves_in_part(
            &Evidence::new().concurrency(1),
            Rule::Liveness,
            "the time within",
        );
        let timed = Evidence::new().faults(good.base, Duration::ZERO);
        good.leaves_in_part(&timed, Rule::Liveness, "the concurrency");
        let nothing = Planted::new().answered(1, 1, 1, Acceptance::Fail);
        nothing.leaves_unjudged(&limits(&nothing), Rule::Liveness);
    }
}
