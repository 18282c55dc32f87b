//! The names of keys.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::ConfigError;

/// Checks the name of a list or a stream: keys beside it must come into its slot of a cluster.
pub(crate) fn check(what: &'static str, name: &[u8]) -> Result<(), ConfigError> {
    if name.is_empty() {
        return Err(ConfigError::Empty(what));
    }
    let has_brace = name.iter().any(|byte| matches!(byte, b'{' | b'}'));
    match has_brace && !has_tag(name) {
        true => Err(ConfigError::Braces(what)),
        false => Ok(()),
    }
}

/// What stands beside a key in the database: with its name in front, and in the same slot of a cluster.
///
/// A slot is given by what is between the first `{` and the next `}` if there is anything, and by the
/// whole name otherwise.
pub(crate) fn beside(name: &[u8], suffix: &str) -> Bytes {
    let mut beside = BytesMut::with_capacity(name.len() + suffix.len() + 2);
    match has_tag(name) {
        true => beside.put_slice(name),
        false => {
            beside.put_u8(b'{');
            beside.put_slice(name);
            beside.put_u8(b'}');
        }
    }
    beside.put_slice(suffix.as_bytes());
    beside.freeze()
}

fn has_tag(name: &[u8]) -> bool {
    let Some(open) = name.iter().position(|byte| *byte == b'{') else {
        return false;
    };
    let close = name[open + 1..].iter().position(|byte| *byte == b'}');
    close.is_some_and(|close| close > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside_a_key_is_in_its_slot() {
        assert_eq!(beside(b"orders", ":work"), "{orders}:work");
        assert_eq!(beside(b"{shop}orders", ":work"), "{shop}orders:work");
    }

    #[test]
    fn names_that_have_no_clear_slot_are_refused() {
        assert_eq!(check("list", b"orders"), Ok(()));
        assert_eq!(check("list", b"{shop}orders"), Ok(()));
        assert_eq!(check("list", b""), Err(ConfigError::Empty("list")));
        for name in ["a{}", "a}b", "}{", "{}a"] {
            assert_eq!(
                check("list", name.as_bytes()),
                Err(ConfigError::Braces("list"))
            );
        }
    }
}
