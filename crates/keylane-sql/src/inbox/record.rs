//! Messages in the form in which the tables store them.

use std::collections::HashMap;

use keylane_inbox::NewMessage;

use super::headers;
use super::lane::{LaneId, marks};

/// The messages of one call, as columns.
#[derive(Debug, Default)]
pub(super) struct Items<'a> {
    pub(super) items: Vec<Item<'a>>,
    /// Whether a message waits for a version, so that the workers that have its lane must look.
    pub(super) has_versions: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Item<'a> {
    pub(super) lane: LaneId,
    pub(super) message: &'a NewMessage,
    pub(super) headers: Option<Vec<u8>>,
    pub(super) marks: Vec<[u8; 32]>,
}

/// Whether a message is repeated within its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    /// The message is stored, as the one with this index.
    New(usize),
    /// The message repeats the one at this place of its call.
    RepeatOf(usize),
}

/// Finds the messages that are repeated within their call. Pure.
pub(super) fn prepare(messages: &[NewMessage]) -> (Items<'_>, Vec<Within>) {
    let mut items = Items::default();
    let mut within = Vec::with_capacity(messages.len());
    let mut seen = HashMap::new();
    for (place, message) in messages.iter().enumerate() {
        let lane = LaneId::of(&message.key);
        let marks: Vec<[u8; 32]> = marks(lane, message).collect();
        if let Some(first) = marks.iter().find_map(|mark| seen.get(mark).copied()) {
            within.push(Within::RepeatOf(first));
            continue;
        }
        seen.extend(marks.iter().map(|mark| (*mark, place)));
        within.push(Within::New(items.items.len()));
        items.has_versions |= message.version.is_some();
        items.items.push(Item {
            lane,
            message,
            headers: headers::encode(&message.headers),
            marks,
        });
    }
    (items, within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_within_a_call_are_found() {
        let message = |id: &str| NewMessage::new("a", "").id(id);
        let messages = [
            message("1"),
            NewMessage::new("a", ""),
            message("1"),
            message("2").version(1),
            NewMessage::new("a", "").version(1),
        ];
        let (items, within) = prepare(&messages);
        let expected = [
            Within::New(0),
            Within::New(1),
            Within::RepeatOf(0),
            Within::New(2),
            Within::RepeatOf(3),
        ];
        assert_eq!(within, expected);
        assert_eq!(items.items.len(), 3);
        assert!(items.has_versions);
    }
}
