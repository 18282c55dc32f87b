//! The settings of a queue.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

/// The place of the key in an element that was pushed as plain bytes. An element that was pushed by
/// [`ListQueue::push`](crate::ListQueue::push) has its key beside it.
///
/// # Examples
///
/// ```
/// use keylane_redis::ListKey;
///
/// let json = ListKey::json("user");     // {"user": "u-7", "amount": 12}
/// let text = ListKey::before(b":");     // u-7:12
/// # let _ = (json, text);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListKey(Bytes);

impl ListKey {
    /// Plain elements have no key: each worker takes the next one. A single process with one worker
    /// keeps their order all the same.
    pub fn none() -> Self {
        Self::default()
    }

    /// The key is the value of this field of a JSON object, if it is text or a number. Numbers
    /// beyond 2⁵³ are rounded, so that some of them share a key. An element without the field has
    /// no key.
    pub fn json(field: &str) -> Self {
        Self::rule(b'j', field.as_bytes())
    }

    /// The key is the part before these bytes. An element without them has no key.
    pub fn before(delimiter: &[u8]) -> Self {
        match delimiter.is_empty() {
            true => Self::none(),
            false => Self::rule(b'b', delimiter),
        }
    }

    fn rule(how: u8, rest: &[u8]) -> Self {
        let mut rule = BytesMut::with_capacity(1 + rest.len());
        rule.put_u8(how);
        rule.put_slice(rest);
        Self(rule.freeze())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What to do about elements without a key, if there is no rule that finds one.
const NO_RULE: &str = "set the place of the key with `ListBuilder::key`, or `ListKey::none()` if \
                       order does not matter";

/// What to do about elements in which the rule finds no key.
const RULE_FAILS: &str = "the rule of `ListBuilder::key` finds none in it; correct the rule, or \
                          what producers push";

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) list: Bytes,
    pub(super) key: ListKey,
    /// Whether the key was set, to none perhaps.
    pub(super) has_rule: bool,
    pub(super) lease: Duration,
    pub(super) most_sent: usize,
    pub(super) most_bytes: usize,
    pub(super) is_cyclic: bool,
    pub(super) keeps_letters: bool,
    pub(super) exact_starts: bool,
}

impl Settings {
    /// What to do about an element without a key; nothing if that is meant.
    pub(super) fn remedy_for_no_key(&self) -> Option<&'static str> {
        match (self.has_rule, self.key == ListKey::none()) {
            (false, _) => Some(NO_RULE),
            (true, true) => None,
            (true, false) => Some(RULE_FAILS),
        }
    }
}
