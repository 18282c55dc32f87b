//! Messages as the fields of an entry.

use std::borrow::Cow;

use bytes::Bytes;
use keylane_source::RawMessage;

use super::id::EntryId;
use super::origin::Origin;

/// Marks a message without a payload: the value of its key was deleted.
const TOMBSTONE: &[u8] = b"keylane.tombstone";

/// The prefix of a header whose name is that of one of the fields.
const HEADER: &str = "keylane.header.";

/// The prefix of a header without a value. A field of an entry has one, so it is empty.
const NULL: &str = "keylane.null.";

/// The fields of an entry that contain the parts of a message. The other fields are its headers, in
/// their order.
///
/// | field | by default | its value |
/// | --- | --- | --- |
/// | key | `key` | any bytes; without the field the message has no key |
/// | payload | `payload` | any bytes |
/// | id | `id` | the producer's name of the message |
/// | version | `version` | the place of the message among those of its key, as a decimal number |
///
/// Of several fields with the same name the first one counts, and the others are headers. If a
/// producer uses none of these fields, all fields of its entry are headers, and the payload is
/// empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFields {
    key: Bytes,
    payload: Bytes,
    id: Bytes,
    version: Bytes,
}

impl Default for StreamFields {
    fn default() -> Self {
        Self {
            key: Bytes::from_static(b"key"),
            payload: Bytes::from_static(b"payload"),
            id: Bytes::from_static(b"id"),
            version: Bytes::from_static(b"version"),
        }
    }
}

impl StreamFields {
    /// Creates the default fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the field of the key.
    #[must_use]
    pub fn key(mut self, name: impl Into<Bytes>) -> Self {
        self.key = name.into();
        self
    }

    /// Sets the field of the payload.
    #[must_use]
    pub fn payload(mut self, name: impl Into<Bytes>) -> Self {
        self.payload = name.into();
        self
    }

    /// Sets the field of the id.
    #[must_use]
    pub fn id(mut self, name: impl Into<Bytes>) -> Self {
        self.id = name.into();
        self
    }

    /// Sets the field of the version.
    #[must_use]
    pub fn version(mut self, name: impl Into<Bytes>) -> Self {
        self.version = name.into();
        self
    }

    pub(super) fn has_key(&self, entry: &[(Bytes, Bytes)]) -> bool {
        entry.iter().any(|(name, _)| *name == self.key)
    }

    /// Whether an entry has a payload, or says that there is none.
    pub(super) fn has_payload(&self, entry: &[(Bytes, Bytes)]) -> bool {
        let is_payload = |name: &Bytes| *name == self.payload || *name == TOMBSTONE;
        entry.iter().any(|(name, _)| is_payload(name))
    }

    pub(super) fn key_name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.key)
    }

    pub(super) fn payload_name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.payload)
    }

    /// Returns the message of an entry.
    pub(super) fn decode(
        &self,
        origin: &Origin,
        id: EntryId,
        attempts: u32,
        fields: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> RawMessage {
        let mut raw = self.message(fields);
        raw.attempt = attempts.saturating_add(1);
        raw.enqueued_at = id.time();
        let (position, id) = origin.position(id);
        raw.id.get_or_insert(id);
        raw.position = Some(position);
        raw
    }

    /// Returns what the fields say of a message.
    pub(super) fn message(&self, fields: impl IntoIterator<Item = (Bytes, Bytes)>) -> RawMessage {
        let mut raw = RawMessage::default();
        let mut payload = None;
        for (name, value) in fields {
            if name == self.payload && payload.is_none() {
                payload = Some(value);
            } else if name == self.key && raw.key.is_none() {
                raw.key = Some(value);
            } else if name == self.id && raw.id.is_none() {
                raw.id = Some(value);
            } else if name == self.version
                && raw.version.is_none()
                && let Some(version) = number(&value)
            {
                raw.version = Some(version);
            } else if name == TOMBSTONE {
                raw.is_tombstone = true;
            } else {
                let name = String::from_utf8_lossy(&name);
                raw.headers.push(match name.strip_prefix(NULL) {
                    Some(name) if value.is_empty() => (name.to_owned(), None),
                    _ => {
                        let name = name.strip_prefix(HEADER).unwrap_or(&name);
                        (name.to_owned(), Some(value))
                    }
                });
            }
        }
        raw.is_tombstone &= payload.is_none();
        raw.payload = payload.unwrap_or_default();
        raw
    }

    /// Returns the fields of a message.
    pub(super) fn encode(&self, raw: &RawMessage) -> Vec<(Bytes, Bytes)> {
        let mut fields = Vec::with_capacity(raw.headers.len() + 4);
        if let Some(key) = &raw.key {
            fields.push((self.key.clone(), key.clone()));
        }
        if let Some(id) = &raw.id {
            fields.push((self.id.clone(), id.clone()));
        }
        if let Some(version) = raw.version {
            fields.push((self.version.clone(), version.to_string().into()));
        }
        match raw.is_tombstone {
            true => fields.push((Bytes::from_static(TOMBSTONE), Bytes::new())),
            false => fields.push((self.payload.clone(), raw.payload.clone())),
        }
        for (name, value) in &raw.headers {
            let name = match value {
                None => format!("{NULL}{name}"),
                Some(_) if self.is_taken(name) => format!("{HEADER}{name}"),
                Some(_) => name.clone(),
            };
            fields.push((name.into(), value.clone().unwrap_or_default()));
        }
        fields
    }

    fn is_taken(&self, name: &str) -> bool {
        let ours = [&self.key, &self.payload, &self.id, &self.version];
        let name = name.as_bytes();
        ours.iter().any(|field| **field == name)
            || name == TOMBSTONE
            || name.starts_with(HEADER.as_bytes())
            || name.starts_with(NULL.as_bytes())
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(fields: &[(&'static str, &'static str)]) -> RawMessage {
        let fields = fields.iter().map(|(name, value)| {
            let of = |text: &'static str| Bytes::from_static(text.as_bytes());
            (of(name), of(value))
        });
        StreamFields::new().decode(
            &Origin::new("9", b"orders"),
            EntryId::new(1_700, 3),
            2,
            fields,
        )
    }

    #[test]
    fn an_entry_of_a_foreign_producer_keeps_its_fields() {
        let raw = decoded(&[("user", "7"), ("amount", "250"), ("user", "8")]);
        assert_eq!((&raw.key, &raw.payload[..]), (&None, &b""[..]));
        let headers = [("user", "7"), ("amount", "250"), ("user", "8")];
        let headers = headers.map(|(name, value)| (name.to_owned(), Some(Bytes::from(value))));
        assert_eq!(raw.headers, headers);
        assert_eq!(raw.id, Some("orders/1700-3".into()));
        assert_eq!(raw.position, Some("9 orders/1700-3".into()));
        assert!(!raw.is_tombstone);
        assert_eq!(raw.attempt, 3);
    }

    #[test]
    fn the_first_of_two_fields_counts_and_what_is_no_version_is_a_header() {
        let raw = decoded(&[
            ("key", "a"),
            ("key", "b"),
            ("version", "x"),
            ("version", "7"),
            ("payload", "1"),
            ("payload", "2"),
        ]);
        assert_eq!(
            (raw.key.as_deref(), raw.version),
            (Some(&b"a"[..]), Some(7))
        );
        assert_eq!(raw.payload, "1");
        let names: Vec<_> = raw.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["key", "version", "payload"]);
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("key".to_owned()),
            Just("payload".to_owned()),
            Just("id".to_owned()),
            Just("version".to_owned()),
            Just("keylane.tombstone".to_owned()),
            Just("keylane.header.x".to_owned()),
            Just("keylane.null.x".to_owned()),
            "[a-z.]{0,4}",
        ]
    }

    fn bytes() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(any::<u8>(), 0..8).prop_map(Bytes::from)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        #[test]
        fn what_is_encoded_is_decoded(
            key in proptest::option::of(bytes()),
            id in proptest::option::of(bytes()),
            version in proptest::option::of(any::<u64>()),
            payload in proptest::option::of(bytes()),
            headers in proptest::collection::vec((text(), proptest::option::of(bytes())), 0..6),
        ) {
            let mut raw = RawMessage::default();
            raw.key = key;
            raw.id = id;
            raw.version = version;
            raw.is_tombstone = payload.is_none();
            raw.payload = payload.unwrap_or_default();
            raw.headers = headers;
            let fields = StreamFields::new();
            let encoded = fields.encode(&raw);
            let mut decoded = fields.decode(&Origin::new("9", b"s"), EntryId::new(1, 1), 0, encoded);
            if raw.id.is_none() {
                decoded.id = None;
            }
            raw.attempt = 1;
            raw.position = decoded.position.clone();
            raw.enqueued_at = decoded.enqueued_at;
            prop_assert_eq!(decoded, raw);
        }
    }
}
