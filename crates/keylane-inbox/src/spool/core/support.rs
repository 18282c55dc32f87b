//! For tests of the core.

use bytes::Bytes;

use super::entry::{Entry, Stored};
use crate::spool::headers::Headers;
use crate::spool::id::MessageId;
use crate::spool::message::Spooled;

/// A message with a payload of this length.
pub(in crate::spool) fn entry(sequence: u64, key: &[u8], len: usize) -> Entry {
    let id = MessageId {
        spool: 1,
        epoch: 1,
        sequence,
    };
    let message = Spooled {
        id,
        key: Bytes::copy_from_slice(key),
        payload: Bytes::from(vec![0; len]),
        headers: Headers::default(),
    };
    Entry::new(message, Stored::No)
}
