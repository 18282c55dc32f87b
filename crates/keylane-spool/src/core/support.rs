//! For tests of the core.

use std::time::Duration;

use bytes::Bytes;

use super::entry::{Entry, Stored};
use super::{Batch, Core, Settings};
use crate::backoff::Backoff;
use crate::headers::Headers;
use crate::id::{Epoch, MessageId};
use crate::journal::Found;
use crate::message::Spooled;
use crate::policy::{AtLimit, Persist};

/// Returns a message with a payload of this length.
pub(crate) fn entry(sequence: u64, key: &[u8], len: usize) -> Entry {
    let id = MessageId {
        spool: 1,
        epoch: Epoch { count: 1, drawn: 7 },
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

/// Returns a core with 8 KiB of memory and an empty directory, whose batches are of four.
pub(crate) fn core(persist: Persist) -> Core {
    let settings = Settings {
        batch: Batch {
            count: 4,
            bytes: 1 << 20,
            linger: Duration::ZERO,
        },
        in_flight: 1,
        persist,
        at_limit: AtLimit::Wait,
        memory: 8 << 10,
        disk: Some(1 << 20),
        max_message: 2 << 10,
        halts: true,
    };
    let found = Found {
        spool: 1,
        epoch: Epoch { count: 1, drawn: 7 },
        range: None,
        messages: 0,
        bytes: 0,
    };
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
    Core::new(settings, backoff, 1, Some(found))
}
