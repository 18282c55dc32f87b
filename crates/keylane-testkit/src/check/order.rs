//! I3, I4: one at a time, in order.

use std::collections::{BTreeSet, HashMap};

use super::judgement::Judgement;
use super::rule::Rule;
use super::story::{Message, Run, Story};
use crate::events::{Id, Key, Token};

/// I3: attempts of one key do not overlap. They may under different tokens, if the sink refuses all
/// writes of the older one from then on.
pub(super) fn exclusion(story: &Story<'_>) -> Judgement {
    if story.runs.is_empty() {
        return Judgement::not_judged(Rule::Exclusion, "nothing was started");
    }
    let mut judgement = Judgement::new(Rule::Exclusion);
    let accepted = accepted_writes(story);
    for (key, runs) in story.runs_by_key() {
        let mut open: Vec<&Run> = Vec::new();
        for run in runs {
            open.retain(|other| other.is_open_at(run.start));
            for other in &open {
                overlap(story, &accepted, &mut judgement, key, (other, run));
            }
            open.push(run);
        }
    }
    judgement
}

/// Where the sink has accepted a write, by key and token.
type Accepted = HashMap<(Key, Token), Vec<usize>>;

fn accepted_writes(story: &Story<'_>) -> Accepted {
    let mut accepted = Accepted::new();
    for write in story.sink_writes.iter().filter(|write| write.accepted) {
        let of_token = accepted.entry((write.key, write.token)).or_default();
        of_token.push(write.at);
    }
    accepted
}

fn overlap(
    story: &Story<'_>,
    accepted: &Accepted,
    judgement: &mut Judgement,
    key: Key,
    (first, second): (&Run, &Run),
) {
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
    let writes = accepted.get(&(key, older)).map_or(&[][..], Vec::as_slice);
    let later = writes.partition_point(|write| *write <= second.start);
    if let Some(write) = writes.get(later) {
        let what = format!("a write under the older token {older} was accepted in an overlap");
        let at = at.into_iter().chain([*write]).collect();
        judgement.broken(story, key, ids, at, what);
    }
}

/// I4: first starts of a key follow the order of acceptance, and a retry comes before the messages
/// behind it. After a break a key may go back to the first un-acked message. If the source repeats
/// messages without a reason, only the first start of each is looked at.
pub(super) fn order(story: &Story<'_>) -> Judgement {
    if story.runs.is_empty() {
        return Judgement::not_judged(Rule::Order, "nothing was started");
    }
    let mut judgement = Judgement::new(Rule::Order);
    for (key, mut runs) in story.runs_by_key() {
        if story.evidence.redelivers {
            let mut seen = BTreeSet::new();
            runs.retain(|run| seen.insert(run.id));
        }
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

/// Returns why `run` should not have followed `before` on their key, and which other message shows
/// it.
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

/// Returns the first message of a key that was accepted before the break at `since` and not settled
/// by `until`. It must come first.
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
