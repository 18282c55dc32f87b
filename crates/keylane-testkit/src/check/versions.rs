//! I9, I10: lanes with `Coalesce`, and lanes with `Sequence`.

use std::time::Duration;

use super::evidence::Gaps;
use super::judgement::Judgement;
use super::rule::Rule;
use super::story::{Message, Story};
use crate::events::Id;

/// I9: the last version handled on a key is the last version sent, and a message is merged only
/// into a newer one.
pub(super) fn coalescing(story: &Story<'_>) -> Judgement {
    if !story.evidence.coalescing {
        return Judgement::not_judged(Rule::Coalescing, "lanes do not coalesce");
    }
    if story.evidence.quiescent.is_none() {
        return Judgement::not_judged(Rule::Coalescing, "the history does not end at quiescence");
    }
    let mut judgement = Judgement::new(Rule::Coalescing);
    for (&key, ids) in &story.keys {
        let handled = |message: &Message| message.done.last().max(message.dead.last()).copied();
        let last = ids.iter().copied().rev().find(|id| {
            let message = &story.messages[id];
            let unsure = !message.is_accepted() && handled(message).is_none();
            !unsure && !story.is_excused(*id)
        });
        let handled_last = ids
            .iter()
            .copied()
            .filter(|id| handled(&story.messages[id]).is_some())
            .max_by_key(|id| handled(&story.messages[id]));
        if let (Some(last), Some(other)) = (last, handled_last)
            && last != other
        {
            let what = format!("id {other} was handled last, and not id {last}, sent last");
            let at = story.messages[&last].sent.into_iter();
            let at = at.chain(handled(&story.messages[&other])).collect();
            judgement.broken(story, key, [last, other], at, what);
        }
    }
    for (&id, message) in &story.messages {
        let Some((at, into)) = message.coalesced else {
            continue;
        };
        let target = story.messages.get(&into);
        if target.is_some_and(|t| t.key != message.key || t.seq < message.seq) {
            let what = "was coalesced into an older message, or another key's".to_owned();
            let ids = vec![id, into];
            judgement.broken(story, message.key, ids, vec![at], what);
        }
    }
    judgement
}

/// I10: versions handled on a key strictly increase between breaks. Each version left out between
/// two of them was reported as missing, in time. The reports are evidence, not events.
pub(super) fn sequencing(story: &Story<'_>) -> Judgement {
    if !story.evidence.sequencing {
        return Judgement::not_judged(Rule::Sequencing, "lanes do not sequence");
    }
    let mut judgement = Judgement::new(Rule::Sequencing);
    match &story.evidence.gaps {
        Some(gaps) => reports(story, gaps, &mut judgement),
        None => judgement.missing("reports of gaps"),
    }
    for (&key, ids) in &story.keys {
        let mut handled: Vec<_> = ids
            .iter()
            .flat_map(|&id| story.messages[&id].done.iter().map(move |&at| (at, id)))
            .collect();
        handled.sort_unstable();
        for pair in handled.windows(2) {
            let ((first, one), (second, other)) = (pair[0], pair[1]);
            let increases = story.messages[&one].seq < story.messages[&other].seq;
            if !increases && story.breaks_between(first, second).is_empty() {
                let what = "a version was handled after one as new or newer".to_owned();
                let (ids, at) = (vec![one, other], vec![first, second]);
                judgement.broken(story, key, ids, at, what);
            }
        }
    }
    judgement
}

/// A report may be late by this much: twice the resolution of a timer.
const SLACK: Duration = Duration::from_millis(2);

/// Each version that was left out was reported, and each report was in time.
fn reports(story: &Story<'_>, gaps: &Gaps, judgement: &mut Judgement) {
    for (&key, ids) in &story.keys {
        let of_key = || gaps.reports.iter().filter(|(of, ..)| *of == key);
        let mut handled: Vec<_> = ids
            .iter()
            .filter(|id| !story.messages[*id].done.is_empty())
            .map(|&id| (story.messages[&id].seq, id))
            .collect();
        handled.sort_unstable();
        for pair in handled.windows(2) {
            let ((before, one), (after, other)) = (pair[0], pair[1]);
            let mut version = before.saturating_add(1);
            while version < after {
                let report =
                    of_key().find(|(_, first, last, _)| (*first..=*last).contains(&version));
                let settled =
                    |id: &&Id| story.messages[*id].seq == version && story.is_settled(**id);
                if let Some((_, _, last, _)) = report {
                    version = last.saturating_add(1);
                } else if ids.iter().any(|id| settled(&id)) {
                    version += 1;
                } else {
                    let what = format!("version {version} is missing, and no gap was reported");
                    let at = story.messages[&other].done.clone();
                    let ids = vec![one, other];
                    judgement.broken(story, key, ids, at, what);
                    break;
                }
            }
        }
        let mut told = std::collections::BTreeSet::new();
        for &(_, first, last, at) in of_key() {
            // A second report of the same gap: the key was resumed at some unknown time in between.
            if !told.insert(first) {
                continue;
            }
            let behind = ids.iter().filter(|id| story.messages[*id].seq > last);
            let seen = behind.filter_map(|id| story.messages[id].sent).min();
            // A version counts as missing once all versions before it are in line.
            let before = ids.iter().filter(|id| story.messages[*id].seq < first);
            let lined_up = before
                .filter_map(|id| story.messages[id].touched)
                .filter(|&position| story.time(position) <= at)
                .max();
            let Some(since) = seen.max(lined_up).map(|position| story.time(position)) else {
                continue;
            };
            if at > since + gaps.patience + SLACK {
                let late = at - since;
                let what = format!("the gap of {first} to {last} was reported after {late:?}");
                let (ids, at) = (Vec::new(), seen.into_iter().collect());
                judgement.broken(story, key, ids, at, what);
            }
        }
    }
}
