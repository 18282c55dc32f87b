//! The names of keys.
//!
//! Each key of this crate that belongs to a name of the user begins with a hash tag and a mark:
//!
//! ```text
//! orders        {orders}:keylane:…
//! {shop}orders  {shop}:keylane:12:{shop}orders:…
//! ```
//!
//! 1. The tag is that of the name, or the name itself if it has none, so both are in one slot of a
//!    cluster.
//! 2. If the name has a tag, its length and the name follow: so two names share no key, with any
//!    ends. Our own ends never begin with a digit.
//! 3. A name that begins like one of our keys is refused. So none of them is a key of the user.

use bytes::Bytes;
use keylane_connector::ConfigError;

const MARK: &[u8] = b":keylane:";

pub(crate) const EMPTY: &str = "needs a name that is not empty";
const BRACES: &str = "has braces: put text between the first two, as in {shop}orders";
const RESERVED: &str = "begins with a tag and `:keylane:`, which keylane reserves for its keys";

/// Checks a name from which keys are made.
pub(crate) fn check(what: &'static str, name: &[u8]) -> Result<(), ConfigError> {
    if name.is_empty() {
        return Err(ConfigError::new(what, EMPTY));
    }
    let has_brace = name.iter().any(|byte| matches!(byte, b'{' | b'}'));
    match tag_of(name) {
        None if has_brace => Err(ConfigError::new(what, BRACES)),
        Some(tag) if is_reserved(name, tag) => Err(ConfigError::new(what, RESERVED)),
        _ => Ok(()),
    }
}

/// Returns our key with this end, which belongs to a [checked](check) name and is in its slot.
pub(crate) fn beside(name: &[u8], end: &[&[u8]]) -> Bytes {
    let tag = tag_of(name);
    let length = tag.map(|_| format!("{}:", name.len())).unwrap_or_default();
    let itself: [&[u8]; 3] = match tag {
        Some(_) => [length.as_bytes(), name, b":"],
        None => [b"", b"", b""],
    };
    let front: [&[u8]; 4] = [b"{", tag.unwrap_or(name), b"}", MARK];
    [&front, &itself[..], end].concat().concat().into()
}

/// Returns the same key in a slot of its own, one for each number: the number follows the name in
/// the tag.
pub(crate) fn beside_in(name: &[u8], number: u16, end: &[&[u8]]) -> Bytes {
    let (number, length) = (format!("/{number}"), format!("{}:", name.len()));
    let tag = tag_of(name).unwrap_or(name);
    let front: [&[u8]; 5] = [b"{", tag, number.as_bytes(), b"}", MARK];
    let itself: [&[u8]; 3] = [length.as_bytes(), name, b":"];
    [&front, &itself[..], end].concat().concat().into()
}

/// Returns the part of a key that decides its slot: the text between the first `{` and the next
/// `}`, if there is any.
fn tag_of(name: &[u8]) -> Option<&[u8]> {
    let open = name.iter().position(|byte| *byte == b'{')? + 1;
    let close = name[open..].iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &name[open..open + close])
}

fn is_reserved(name: &[u8], tag: &[u8]) -> bool {
    let behind = name
        .strip_prefix(b"{")
        .and_then(|rest| rest.strip_prefix(tag));
    behind.is_some_and(|rest| {
        rest.strip_prefix(b"}")
            .is_some_and(|rest| rest.starts_with(MARK))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns the slot of a key in a cluster, by the specification of Redis Cluster.
    fn slot(key: &[u8]) -> u16 {
        let hashed = tag_of(key).unwrap_or(key);
        let step = |crc: u16, byte: &u8| {
            let shift = |crc: u16, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            (0..8).fold(crc ^ (u16::from(*byte) << 8), shift)
        };
        hashed.iter().fold(0, step) % 16_384
    }

    /// Names that are similar, made of the parts of our keys.
    fn name() -> impl Strategy<Value = Vec<u8>> {
        const PARTS: [&str; 12] = [
            "{",
            "}",
            ":",
            "/",
            "a",
            "1",
            "3",
            ":keylane:",
            "keylane",
            "token",
            "lease:",
            "owner:",
        ];
        let parts = prop::collection::vec(prop::sample::select(&PARTS[..]), 1..7);
        let any = prop_oneof![
            9 => parts.prop_map(|parts| parts.concat().into_bytes()),
            1 => prop::collection::vec(any::<u8>(), 1..6),
        ];
        any.prop_filter("a name that is refused", |name| check("list", name).is_ok())
    }

    /// Two names, which often differ in little or share a tag.
    fn names() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let alike = (name(), 0..3).prop_map(|(one, how)| {
            let other = match how {
                0 => [b"{", &one[..], b"}"].concat(),
                1 => [b"a", &one[..]].concat(),
                _ => [&one[..], b"a"].concat(),
            };
            (one, other)
        });
        let alike = alike.prop_filter("a name that is refused", |(_, other)| {
            check("list", other).is_ok()
        });
        prop_oneof![(name(), name()), alike]
    }

    /// Groups, workers and keys.
    fn end() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![name(), prop::collection::vec(any::<u8>(), 0..4)]
    }

    /// Returns every key that this crate may make for a name, with this in its end.
    fn keys(name: &[u8], end: &[u8]) -> Vec<Bytes> {
        let words: [&[u8]; 4] = [b"token", b"work:", b"owner:", b"lease:"];
        let with = words.map(|word| beside(name, &[word, end]));
        let slots = (0..3).map(|number| beside_in(name, number, &[b"lease:", end]));
        with.into_iter().chain(slots).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(4_000)))]

        #[test]
        fn no_two_names_share_a_key((one, other) in names(), ends in (end(), end())) {
            let mut all: HashSet<Bytes> = keys(&one, &ends.0).into_iter().collect();
            prop_assert_eq!(all.len(), 7);
            if one != other || ends.0 != ends.1 {
                let others = keys(&other, &ends.1);
                // In real keys, the last token of a list has nothing behind it.
                prop_assert!(others.into_iter().all(|key| all.insert(key)), "{all:?}");
            }
            prop_assert!(!all.contains(&one[..]) && !all.contains(&other[..]));
        }

        #[test]
        fn a_key_is_in_the_slot_of_its_name(name in name(), end in end()) {
            prop_assert_eq!(slot(&beside(&name, &[b"work:", &end])), slot(&name));
        }
    }

    #[test]
    fn keys_are_called_as_it_is_written_down() {
        assert_eq!(beside(b"orders", &[b"work"]), "{orders}:keylane:work");
        let tagged = beside(b"{shop}orders", &[b"work"]);
        assert_eq!(tagged, "{shop}:keylane:12:{shop}orders:work");
        let numbered = beside_in(b"orders", 2, &[b"token"]);
        assert_eq!(numbered, "{orders/2}:keylane:6:orders:token");
    }

    #[test]
    fn slots_are_those_of_the_server() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"a{b}c"), slot(b"b"));
        assert_ne!(slot(b"{}{x}"), slot(b"x"));
    }

    #[test]
    fn names_that_have_no_clear_slot_are_refused() {
        for name in [
            "orders",
            "{shop}orders",
            "a{b}c",
            "}{x}",
            "{orders}",
            ":keylane:",
            "a/1",
        ] {
            assert_eq!(check("list", name.as_bytes()), Ok(()), "{name}");
        }
        assert_eq!(check("list", b""), Err(ConfigError::new("list", EMPTY)));
        for name in ["a{}", "a}b", "}{", "{}a", "{}", "{}{x}"] {
            assert_eq!(
                check("list", name.as_bytes()),
                Err(ConfigError::new("list", BRACES)),
                "{name}"
            );
        }
        for name in [
            "{orders}:keylane:token",
            "{a}:keylane:",
            "{a}:keylane:3:{a}:work:w",
        ] {
            assert_eq!(
                check("list", name.as_bytes()),
                Err(ConfigError::new("list", RESERVED)),
                "{name}"
            );
        }
    }
}
