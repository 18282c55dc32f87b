//! The encoding of a message in the store: a format of this crate, with a version and a checksum.
//!
//! ```text
//! record    := version:u8=1 · flags:u8 · accepted_at_ms:u64
//!              · key_len:u32 · key
//!              · [id_len:u16 · id]                                    flag 1
//!              · [version:u64]                                        flag 2
//!              · [count:u16 · (name_len:u32 · name · value_len:u32 · value)*]   flag 4
//!              · payload_len:u32 · payload
//!              · crc32:u32
//! ```
//!
//! Numbers are little-endian. The checksum covers the sequence of the message and all bytes before
//! it, so it detects a record that is stored under the number of another one.
//!
//! [`decode`] never panics: for any bytes it returns a message or a [`DecodeError`], and it never
//! allocates more memory than the record has bytes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use keylane_rt::text_in_debug;
use thiserror::Error;

use crate::message::{Header, MessageId, NewMessage, StoredMessage};

/// The version that this crate writes.
pub(crate) const VERSION: u8 = 1;

const ID: u8 = 1;
const MESSAGE_VERSION: u8 = 2;
const HEADERS: u8 = 4;

/// The reason why bytes are not a record.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// It ends too early, or a part claims to be longer than the record.
    #[error("the record is cut short")]
    Short,
    /// A newer version of this crate has written it.
    #[error(
        "the record has version {0}, but this program knows {VERSION}: use a newer version of it"
    )]
    Version(u8),
    /// Its bytes have changed since they were written.
    #[error("the checksum of the record does not match")]
    Checksum,
    /// The checksum matches, but the layout is not that of a record.
    #[error("the layout of the record is unknown")]
    Layout,
}

text_in_debug! { DecodeError: Short, Version, Checksum, Layout }

/// Returns how many bytes [`encode`] will fill.
pub(crate) fn encoded_len(message: &NewMessage) -> usize {
    let id = message.id.as_ref().map_or(0, |id| 2 + id.as_bytes().len());
    let version = message.version.map_or(0, |_| 8);
    let header = |header: &Header| 8 + header.name.len() + header.value.len();
    let headers = match &message.headers[..] {
        [] => 0,
        headers => 2 + headers.iter().map(header).sum::<usize>(),
    };
    10 + 4 + message.key.len() + id + version + headers + 4 + message.payload.len() + 4
}

/// Writes the record of a message that is within the limits.
///
/// # Panics
///
/// Panics if `out` does not have exactly [`encoded_len`] bytes.
pub(crate) fn encode(sequence: u64, accepted_at_ms: u64, message: &NewMessage, out: &mut [u8]) {
    let mut writer = Writer { rest: &mut *out };
    let mut flags = 0;
    for (flag, present) in [
        (ID, message.id.is_some()),
        (MESSAGE_VERSION, message.version.is_some()),
        (HEADERS, !message.headers.is_empty()),
    ] {
        flags |= if present { flag } else { 0 };
    }
    writer.put(&[VERSION, flags]);
    writer.put(&accepted_at_ms.to_le_bytes());
    writer.long(&message.key);
    if let Some(id) = &message.id {
        writer.short(id.as_bytes().len());
        writer.put(id.as_bytes());
    }
    if let Some(version) = message.version {
        writer.put(&version.to_le_bytes());
    }
    if !message.headers.is_empty() {
        writer.short(message.headers.len());
        for header in &message.headers {
            writer.long(header.name.as_bytes());
            writer.long(&header.value);
        }
    }
    writer.long(&message.payload);
    assert_eq!(writer.rest.len(), 4, "the room is that of `encoded_len`");
    seal(sequence, out);
}

/// Puts the checksum into the last four bytes.
pub(crate) fn seal(sequence: u64, record: &mut [u8]) {
    let (body, checksum) = record.split_at_mut(record.len() - 4);
    checksum.copy_from_slice(&sum(sequence, body).to_le_bytes());
}

/// Returns the body of a record whose checksum is right.
pub(crate) fn unseal(sequence: u64, record: Bytes) -> Result<Bytes, DecodeError> {
    let Some(at) = record.len().checked_sub(4) else {
        return Err(DecodeError::Short);
    };
    let (body, checksum) = record.split_at(at);
    if sum(sequence, body).to_le_bytes() != checksum {
        return Err(DecodeError::Checksum);
    }
    Ok(record.slice(..at))
}

fn sum(sequence: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// Reads a record. Key, payload and headers share its bytes and are not copied.
///
/// # Errors
///
/// [`DecodeError`] for any bytes that are not the record of a message with this sequence.
///
/// # Examples
///
/// ```
/// use keylane_inbox::record::{DecodeError, decode};
///
/// assert_eq!(decode(1, b"no record".as_slice().into()), Err(DecodeError::Version(b'n')));
/// ```
pub fn decode(sequence: u64, record: Bytes) -> Result<StoredMessage, DecodeError> {
    // Checked before the checksum, which a newer version may keep elsewhere.
    match record.first() {
        None => return Err(DecodeError::Short),
        Some(&VERSION) => {}
        Some(&version) => return Err(DecodeError::Version(version)),
    }
    let mut reader = Reader {
        rest: unseal(sequence, record)?,
    };
    reader.take(1)?;
    let flags = reader.array::<1>()?[0];
    if flags & !(ID | MESSAGE_VERSION | HEADERS) != 0 {
        return Err(DecodeError::Layout);
    }
    let accepted_at = from_millis(reader.u64()?);
    let key = reader.long()?;
    let mut id = None;
    if flags & ID != 0 {
        let bytes = reader.u16()?;
        id = Some(MessageId::from(reader.take(bytes.into())?));
    }
    let version = match flags & MESSAGE_VERSION {
        0 => None,
        _ => Some(reader.u64()?),
    };
    let mut headers = Vec::new();
    if flags & HEADERS != 0 {
        // Not reserved: the number cannot be trusted before the headers are read.
        for _ in 0..reader.u16()? {
            let name = reader.long()?.to_vec();
            let name = String::from_utf8(name).map_err(|_| DecodeError::Layout)?;
            let value = reader.long()?;
            headers.push(Header { name, value });
        }
    }
    let payload = reader.long()?;
    if !reader.rest.is_empty() {
        return Err(DecodeError::Layout);
    }
    Ok(StoredMessage {
        sequence,
        accepted_at,
        key,
        payload,
        id,
        version,
        headers,
    })
}

/// Returns milliseconds since 1970; an earlier time counts as 1970.
pub(crate) fn to_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time of so many milliseconds since 1970, or the latest possible time.
pub(crate) fn from_millis(millis: u64) -> SystemTime {
    // The year 9999: no clock shows a later time, and later ones must not make sums overflow.
    const LATEST_MS: u64 = 253_402_300_799_999;
    UNIX_EPOCH + Duration::from_millis(millis.min(LATEST_MS))
}

/// Fills a slice from its start.
pub(crate) struct Writer<'a> {
    pub(crate) rest: &'a mut [u8],
}

impl Writer<'_> {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let rest = std::mem::take(&mut self.rest);
        let (head, tail) = rest.split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.rest = tail;
    }

    fn short(&mut self, number: usize) {
        let number = u16::try_from(number).expect("the limits are below 65,536");
        self.put(&number.to_le_bytes());
    }

    /// Writes bytes after their length.
    pub(crate) fn long(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("the limits are below 4 GiB");
        self.put(&length.to_le_bytes());
        self.put(bytes);
    }
}

/// Takes parts from the start of some bytes while there are any.
pub(crate) struct Reader {
    pub(crate) rest: Bytes,
}

impl Reader {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<Bytes, DecodeError> {
        if bytes > self.rest.len() {
            return Err(DecodeError::Short);
        }
        Ok(self.rest.split_to(bytes))
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N)?;
        bytes[..].try_into().map_err(|_| DecodeError::Short)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn long(&mut self) -> Result<Bytes, DecodeError> {
        let bytes = self.u32()?;
        self.take(usize::try_from(bytes).map_err(|_| DecodeError::Short)?)
    }
}

#[cfg(test)]
mod tests {
    use keylane_testkit::fuzz::{Target, about};
    use proptest::prelude::*;

    use super::*;

    fn encoded(sequence: u64, accepted_at_ms: u64, message: &NewMessage) -> Vec<u8> {
        let mut record = vec![0; encoded_len(message)];
        encode(sequence, accepted_at_ms, message, &mut record);
        record
    }

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..most)
    }

    prop_compose! {
        fn messages()(
            key in bytes(20),
            payload in bytes(200),
            id in prop::option::of(bytes(20)),
            version in prop::option::of(any::<u64>()),
            headers in prop::collection::vec((".{0,8}", bytes(8)), 0..4),
        ) -> NewMessage {
            let mut message = NewMessage::new(key, payload);
            message.id = id.map(MessageId::from);
            message.version = version;
            for (name, value) in headers {
                message = message.header(name, value);
            }
            message
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        #[test]
        fn what_is_encoded_is_decoded(message in messages(), sequence: u64, ms in 0..1_u64 << 47) {
            let record = encoded(sequence, ms, &message);
            let stored = decode(sequence, record.into()).unwrap();
            prop_assert_eq!(stored.sequence, sequence);
            prop_assert_eq!(to_millis(stored.accepted_at), ms);
            prop_assert_eq!(stored.into_new(), message);
        }

        #[test]
        fn any_bytes_give_an_answer(record in bytes(100), sequence: u64) {
            prop_assert!(decode(sequence, record.into()).is_err());
        }

        // Behind the checksum the decoder checks the layout as carefully.
        #[test]
        fn any_sealed_bytes_give_an_answer(body in bytes(60), flags in 0..16_u8, sequence: u64) {
            let mut record = vec![VERSION, flags];
            record.extend(body);
            record.extend([0; 4]);
            seal(sequence, &mut record);
            if let Ok(stored) = decode(sequence, record.clone().into()) {
                let message = stored.into_new();
                let ms = u64::from_le_bytes(record[2..10].try_into().unwrap());
                prop_assert!(flags & !7 == 0);
                // An empty list of headers may be written in two ways.
                if flags & HEADERS == 0 || !message.headers.is_empty() {
                    prop_assert_eq!(encoded(sequence, ms, &message), record);
                }
            }
        }

        #[test]
        fn a_flipped_bit_is_found(message in messages(), at: prop::sample::Index, bit in 0..8_u8) {
            let mut record = encoded(7, 1, &message);
            let at = at.index(record.len());
            record[at] ^= 1 << bit;
            prop_assert!(decode(7, record.into()).is_err());
        }

        #[test]
        fn a_record_that_is_cut_is_found(message in messages(), at: prop::sample::Index) {
            let mut record = encoded(7, 1, &message);
            record.truncate(at.index(record.len()));
            prop_assert!(decode(7, record.into()).is_err());
        }
    }

    #[test]
    fn fuzzed() {
        let full = NewMessage::new("key", "payload").id("id").version(7);
        let full = full.header("name", "value").header("", "");
        let seal = |record: &mut [u8]| {
            if record.len() >= 4 {
                seal(7, record);
            }
        };
        let look = |bytes: &[u8]| match decode(7, Bytes::copy_from_slice(bytes)) {
            Ok(stored) => {
                let (id, headers) = (&stored.id, &stored.headers);
                let answer = format!(
                    "key {}, id {:?}, version {}, {} headers of {}, payload {}",
                    about(stored.key.len()),
                    id.as_ref().map(|id| about(id.as_bytes().len())),
                    stored.version.is_some(),
                    about(headers.len()),
                    about(headers.iter().map(|header| header.name.len()).sum()),
                    about(stored.payload.len()),
                );
                let message = stored.clone().into_new();
                let again = encoded(7, to_millis(stored.accepted_at), &message);
                assert_eq!(decode(7, again.into()), Ok(stored));
                answer
            }
            Err(DecodeError::Version(_)) => "version".into(),
            Err(error) => format!(
                "{error:?}, flags {:?}",
                bytes.get(1).map(|flags| flags & 15)
            ),
        };
        let seeds = [
            NewMessage::new("", ""),
            NewMessage::new("key", "payload"),
            full,
        ];
        let target = Target {
            corpus: [env!("CARGO_MANIFEST_DIR"), "tests", "corpus", "record"]
                .iter()
                .collect(),
            seeds: seeds.map(|message| encoded(7, 1_000, &message)).into(),
            seal,
            look,
        };
        target.fuzz();
    }

    #[test]
    fn another_sequence_is_found() {
        let record = encoded(7, 1, &NewMessage::new("key", "payload"));
        assert_eq!(decode(8, record.into()), Err(DecodeError::Checksum));
    }

    #[test]
    fn a_newer_record_says_so() {
        let mut record = encoded(7, 1, &NewMessage::new("key", "payload"));
        record[0] = 2;
        seal(7, &mut record);
        assert_eq!(decode(7, record.into()), Err(DecodeError::Version(2)));
    }

    #[test]
    fn lengths_that_lie_ask_for_no_memory() {
        let mut record = vec![VERSION, HEADERS];
        record.extend(1_u64.to_le_bytes());
        record.extend(u32::MAX.to_le_bytes());
        record.extend([0; 4]);
        seal(7, &mut record);
        assert_eq!(decode(7, record.into()), Err(DecodeError::Short));
    }

    #[test]
    fn times_out_of_range_are_the_nearest_that_can_be_told() {
        assert_eq!(to_millis(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert!(from_millis(u64::MAX) > from_millis(1 << 47));
    }
}
