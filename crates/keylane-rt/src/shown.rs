//! Keys in lines of the log.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Not known to those who choose keys, and the same for all connectors of a process.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Shows the raw key of a message by its hash, for a line of the log whose writer does not know
/// whether it may show the key itself. The hash is the same in all such lines of a process. `-`:
/// there is no key.
///
/// ```
/// use keylane_rt::shown_key;
///
/// let shown = shown_key(Some(b"user-7")).to_string();
/// assert_eq!(shown, shown_key(Some(b"user-7")).to_string());
/// assert!(shown.starts_with('#') && !shown.contains("user"));
/// assert_eq!(shown_key(None::<&[u8]>).to_string(), "-");
/// ```
pub fn shown_key<K: AsRef<[u8]>>(key: Option<K>) -> impl fmt::Display + use<K> {
    let hash = key.map(|key| hash_of(key.as_ref()));
    fmt::from_fn(move |f| match hash {
        Some(hash) => write!(f, "#{hash:016x}"),
        None => f.write_str("-"),
    })
}

fn hash_of(key: &[u8]) -> u64 {
    HASHER.hash_one(key)
}
