//! What a producer that was set up wrongly leaves behind: entries without a key or a payload, and
//! entries in a stream that is not read.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::record::StreamFields;

/// What a source has warned of: each kind once.
#[derive(Default)]
pub(super) struct Strays {
    no_key: AtomicBool,
    no_payload: AtomicBool,
    unread: Vec<Unread>,
}

/// The name of a stream that is read in partitions. Nothing reads a stream of the name itself.
pub(super) struct Unread {
    pub(super) name: Bytes,
    /// The first partition, whose owner looks.
    first: Bytes,
    is_said: AtomicBool,
}

impl Strays {
    /// Creates it for a source that reads these names in partitions, and these streams.
    pub(super) fn new(partitioned: &[Bytes], streams: &[Bytes]) -> Self {
        let unread = partitioned.iter().filter(|name| !streams.contains(name));
        let unread = unread.map(|name| Unread {
            name: name.clone(),
            first: [name, &b":0"[..]].concat().into(),
            is_said: AtomicBool::new(false),
        });
        Self {
            unread: unread.collect(),
            ..Self::default()
        }
    }

    /// Warns of the first entry without a key, and of the first one without a payload.
    pub(super) fn look(&self, stream: &[u8], fields: &StreamFields, entry: &[(Bytes, Bytes)]) {
        if !fields.has_key(entry) && is_first(&self.no_key) {
            tracing::warn!(
                target: "keylane",
                stream = %String::from_utf8_lossy(stream),
                field = %fields.key_name(),
                "an entry has no field with its key, so its order is not kept: let producers write \
                 this field, or set theirs with `StreamBuilder::key_field`"
            );
        }
        if !fields.has_payload(entry) && is_first(&self.no_payload) {
            tracing::warn!(
                target: "keylane",
                stream = %String::from_utf8_lossy(stream),
                field = %fields.payload_name(),
                "an entry has no field with its payload, so the payload is empty and all other \
                 fields are headers: let producers write this field, or set theirs with \
                 `StreamBuilder::payload_field`"
            );
        }
    }

    /// Returns what the owner of this stream has to look for.
    pub(super) fn of(&self, stream: &Bytes) -> Option<&Unread> {
        let mut unread = self.unread.iter();
        unread.find(|unread| unread.first == *stream)
    }
}

impl Unread {
    /// Whether it was warned of.
    pub(super) fn is_said(&self) -> bool {
        self.is_said.load(Ordering::Relaxed)
    }

    /// Warns that there are messages of this name, once.
    pub(super) fn warn(&self) {
        if is_first(&self.is_said) {
            let name = String::from_utf8_lossy(&self.name);
            tracing::warn!(
                target: "keylane",
                %name,
                "there are messages under the name of a stream that is read in partitions, and \
                 nothing reads them: let producers add to `{name}:N`, where N is `partition_of` of \
                 the key"
            );
        }
    }
}

/// Whether this happens for the first time.
fn is_first(is_said: &AtomicBool) -> bool {
    !is_said.load(Ordering::Relaxed) && !is_said.swap(true, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_read_itself_is_no_mistake() {
        let names = [Bytes::from("orders"), Bytes::from("refunds")];
        let strays = Strays::new(&names, &[Bytes::from("refunds"), Bytes::from("orders:0")]);
        assert!(strays.of(&Bytes::from("orders:0")).is_some());
        for stream in ["orders", "orders:1", "refunds:0"] {
            assert!(strays.of(&Bytes::from(stream)).is_none(), "{stream}");
        }
    }
}
