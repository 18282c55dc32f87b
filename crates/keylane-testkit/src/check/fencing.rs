//! I12: fencing.

use std::collections::BTreeMap;

use super::judgement::Judgement;
use super::rule::Rule;
use super::story::{SinkWrite, Story};
use crate::events::Key;

/// I12: the tokens of the writes that a sink accepts for a key never decrease.
pub(super) fn fencing(story: &Story<'_>) -> Judgement {
    if story.sink_writes.is_empty() {
        return Judgement::not_judged(Rule::Fencing, "there are no sink writes");
    }
    let mut judgement = Judgement::new(Rule::Fencing);
    let mut newest: BTreeMap<Key, &SinkWrite> = BTreeMap::new();
    for write in story.sink_writes.iter().filter(|write| write.accepted) {
        let known = newest.entry(write.key).or_insert(write);
        if write.token >= known.token {
            *known = write;
            continue;
        }
        let what = format!(
            "token {} was accepted after token {}",
            write.token, known.token
        );
        let (key, at) = (Some(write.key), vec![known.at, write.at]);
        judgement.broken(story, key, [], at, what);
    }
    judgement
}
