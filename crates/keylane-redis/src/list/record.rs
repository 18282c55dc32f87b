//! The format of an element of a list: plain bytes, or a message in an envelope.
//!
//! ```text
//! \0kl1 │ attempts u32 │ flags u8 │ length of the key u32 │ key │ body
//! ```
//!
//! Numbers have their highest byte first. The scripts read and write the part before the body: the
//! attempts, and whether the element was with a worker that died. An element without the first four
//! bytes, or too short for its header, is the payload of a producer that knows only `LPUSH`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use keylane_source::RawMessage;

const MAGIC: &[u8; 4] = b"\0kl1";
const HEAD: usize = 13;

/// The element has a key. The scripts know this flag.
const HAS_KEY: u8 = 1;
/// The element was with a worker that died, and may have killed it. The scripts know this flag.
const SUSPECT: u8 = 2;
/// The body is the payload, and came without an envelope. The scripts know this flag.
const PLAIN: u8 = 4;
/// The body is a length, the headers of a dead letter, and the original element.
const LETTER: u8 = 8;

/// Names and values, in their order.
pub(super) type Headers = Vec<(String, Option<Bytes>)>;

/// The history of an element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    pub(super) attempts: u32,
    pub(super) is_suspect: bool,
}

/// Encodes a message as an element.
pub(super) fn encode(message: &RawMessage) -> Bytes {
    let key = message.key.as_deref();
    let body = message.payload.len() + 64;
    let mut out = BytesMut::with_capacity(HEAD + key.map_or(0, <[u8]>::len) + body);
    put_head(&mut out, 0, 0, key);
    put_body(&mut out, message);
    out.freeze()
}

/// Encodes what stands before the original element in its dead letter: the head, and the headers
/// without the last one. That is the number of the letter, which the script adds.
pub(super) fn letter_parts(key: Option<&[u8]>, why: Vec<(String, Bytes)>) -> [Bytes; 2] {
    let (mut head, mut headers) = (BytesMut::new(), BytesMut::new());
    put_head(&mut head, 0, LETTER, key);
    headers.put_u32(u32::try_from(why.len() + 1).unwrap_or(u32::MAX));
    for (name, value) in why {
        put_header(&mut headers, &name, Some(&value));
    }
    [head.freeze(), headers.freeze()]
}

/// Decodes an element into its message and its history. Plain bytes are a payload, and so is an
/// envelope whose body cannot be read; its key can.
pub(super) fn decode(element: Bytes) -> (RawMessage, Past) {
    let plain = element.clone();
    decode_enveloped(element).unwrap_or_else(|| {
        let key = key_of(&plain);
        let mut message = RawMessage::new(plain);
        message.key = key;
        (message, Past::default())
    })
}

/// Returns the key of an element as the scripts see it: the one in its head, with any body.
pub(super) fn key_of(element: &Bytes) -> Option<Bytes> {
    take_head(&mut element.clone())?.2
}

/// Decodes a dead letter into the original message and the headers that it has as a letter.
pub(super) fn decode_letter(mut from: Bytes) -> Option<(RawMessage, Headers)> {
    let (_, flags, key) = take_head(&mut from)?;
    if flags & LETTER == 0 {
        return None;
    }
    let (mut message, headers) = take_letter(from)?;
    message.key = key.or(message.key);
    Some((message, headers))
}

/// Takes attempts, flags and key.
fn take_head(from: &mut Bytes) -> Option<(u32, u8, Option<Bytes>)> {
    if from.len() < HEAD || !from.starts_with(MAGIC) {
        return None;
    }
    from.advance(MAGIC.len());
    let attempts = from.get_u32();
    let flags = from.get_u8();
    let key = take(from, |from| Some(from.get_u32()))?;
    Some((attempts, flags, (flags & HAS_KEY != 0).then_some(key)))
}

fn take_letter(mut from: Bytes) -> Option<(RawMessage, Headers)> {
    let mut headers = take(&mut from, |from| from.try_get_u32().ok())?;
    let headers = take_headers(&mut headers)?;
    Some((decode(from).0, headers))
}

fn decode_enveloped(mut from: Bytes) -> Option<(RawMessage, Past)> {
    let (attempts, flags, key) = take_head(&mut from)?;
    let past = Past {
        attempts,
        is_suspect: flags & SUSPECT != 0,
    };
    let mut message = if flags & LETTER != 0 {
        let (mut message, headers) = take_letter(from)?;
        message.headers.extend(headers);
        message
    } else if flags & PLAIN != 0 {
        RawMessage::new(from)
    } else {
        take_body(from)?
    };
    message.key = key.or(message.key);
    message.attempt = attempts.saturating_add(1);
    Some((message, past))
}

const TOMBSTONE: u8 = 1;
const HAS_ID: u8 = 2;
const HAS_VERSION: u8 = 4;
const HAS_TIME: u8 = 8;
const IS_PRODUCER_TIME: u8 = 16;

/// Stands for the length of a value that is absent. No value in Redis is as long.
const NULL: u32 = u32::MAX;

fn put_head(out: &mut BytesMut, attempts: u32, flags: u8, key: Option<&[u8]>) {
    out.put_slice(MAGIC);
    out.put_u32(attempts);
    out.put_u8(flags | if key.is_some() { HAS_KEY } else { 0 });
    put(out, key.unwrap_or_default());
}

fn put_body(out: &mut BytesMut, message: &RawMessage) {
    let parts = [
        (message.is_tombstone, TOMBSTONE),
        (message.id.is_some(), HAS_ID),
        (message.version.is_some(), HAS_VERSION),
        (message.enqueued_at.is_some(), HAS_TIME),
        (message.is_producer_time, IS_PRODUCER_TIME),
    ];
    let parts = parts.into_iter().filter(|(is_there, _)| *is_there);
    out.put_u8(parts.fold(0, |flags, (_, flag)| flags | flag));
    if let Some(id) = &message.id {
        put(out, id);
    }
    if let Some(version) = message.version {
        out.put_u64(version);
    }
    if let Some(at) = message.enqueued_at {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        out.put_u64(u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
    }
    put_headers(out, &message.headers);
    out.put_slice(&message.payload);
}

fn take_body(mut from: Bytes) -> Option<RawMessage> {
    let flags = from.try_get_u8().ok()?;
    let mut message = RawMessage::new(Bytes::new());
    message.is_tombstone = flags & TOMBSTONE != 0;
    message.is_producer_time = flags & IS_PRODUCER_TIME != 0;
    if flags & HAS_ID != 0 {
        message.id = Some(take(&mut from, |from| from.try_get_u32().ok())?);
    }
    if flags & HAS_VERSION != 0 {
        message.version = Some(from.try_get_u64().ok()?);
    }
    if flags & HAS_TIME != 0 {
        let micros = Duration::from_micros(from.try_get_u64().ok()?);
        message.enqueued_at = Some(SystemTime::checked_add(&UNIX_EPOCH, micros)?);
    }
    message.headers = take_headers(&mut from)?;
    message.payload = from;
    Some(message)
}

fn put_headers(out: &mut BytesMut, headers: &[(String, Option<Bytes>)]) {
    out.put_u32(u32::try_from(headers.len()).unwrap_or(u32::MAX));
    for (name, value) in headers {
        put_header(out, name, value.as_ref());
    }
}

fn put_header(out: &mut BytesMut, name: &str, value: Option<&Bytes>) {
    put(out, name.as_bytes());
    match value {
        Some(value) => put(out, value),
        None => out.put_u32(NULL),
    }
}

fn take_headers(from: &mut Bytes) -> Option<Headers> {
    let count = from.try_get_u32().ok()?;
    let mut headers = Vec::new();
    for _ in 0..count {
        let name = take(from, |from| from.try_get_u32().ok())?;
        let value = match from.try_get_u32().ok()? {
            NULL => None,
            length => Some(take(from, |_| Some(length))?),
        };
        headers.push((String::from_utf8(name.into()).ok()?, value));
    }
    Some(headers)
}

fn put(out: &mut BytesMut, bytes: &[u8]) {
    // No value in Redis has 4 GiB: 512 MiB is the limit.
    out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}

fn take(from: &mut Bytes, length: impl FnOnce(&mut Bytes) -> Option<u32>) -> Option<Bytes> {
    let length = usize::try_from(length(from)?).ok()?;
    (length <= from.len()).then(|| from.split_to(length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from)
    }

    fn message() -> impl Strategy<Value = RawMessage> {
        let headers = prop::collection::vec(("[a-z.]{0,8}", prop::option::of(bytes())), 0..4);
        let optional = (
            prop::option::of(bytes()),
            prop::option::of(bytes()),
            prop::option::of(any::<u64>()),
            prop::option::of(0..1u64 << 50),
        );
        (bytes(), any::<[bool; 2]>(), headers, optional).prop_map(
            |(payload, [is_tombstone, is_producer_time], headers, (key, id, version, at))| {
                let mut message = RawMessage::new(payload);
                message.is_tombstone = is_tombstone;
                message.is_producer_time = is_producer_time;
                message.headers = headers;
                (message.key, message.id, message.version) = (key, id, version);
                message.enqueued_at = at.map(|at| UNIX_EPOCH + Duration::from_micros(at));
                message
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        #[test]
        fn a_message_comes_out_as_it_went_in(message in message()) {
            prop_assert_eq!(decode(encode(&message)), (message, Past::default()));
        }

        /// Nothing panics, and no bytes are lost.
        #[test]
        fn anything_else_is_a_payload(mut element in bytes(), has_magic: bool) {
            if has_magic {
                element = [MAGIC, &*element].concat().into();
            }
            let (message, _) = decode(element.clone());
            if !has_magic || element.len() < HEAD {
                prop_assert_eq!(message, RawMessage::new(element));
            } else if let Some(key) = key_of(&element) {
                prop_assert_eq!(message.key, Some(key));
            }
        }

        #[test]
        fn a_letter_has_the_message_and_why(message in message(), is_plain: bool) {
            let cause = ("keylane.cause".to_owned(), Bytes::from_static(b"failed"));
            let element = match is_plain {
                true => message.payload.clone(),
                false => encode(&message),
            };
            let [head, headers] = letter_parts(message.key.as_deref(), vec![cause.clone()]);
            // As the script does it.
            let mut letter = BytesMut::from(&head[..]);
            let mut all = BytesMut::from(&headers[..]);
            let number = ("keylane.letter".to_owned(), Some(Bytes::from_static(b"17")));
            put_header(&mut all, &number.0, number.1.as_ref());
            put(&mut letter, &all);
            letter.put_slice(&element);
            let letter = letter.freeze();
            let ours = vec![(cause.0, Some(cause.1)), number];
            let (mut wanted, _) = decode(element.clone());
            wanted.key = message.key;
            prop_assert_eq!(decode_letter(letter.clone()), Some((wanted.clone(), ours.clone())));
            prop_assert_eq!(decode_letter(element), None);
            wanted.headers.extend(ours);
            prop_assert_eq!(decode(letter).0, wanted);
        }
    }

    #[test]
    fn what_the_scripts_write_is_read() {
        let mut element = BytesMut::new();
        put_head(&mut element, 3, PLAIN | SUSPECT, Some(b"user-7"));
        element.put_slice(b"pay");
        let (message, past) = decode(element.freeze());
        assert_eq!(message.key.as_deref(), Some(&b"user-7"[..]));
        assert_eq!((&*message.payload, message.attempt), (&b"pay"[..], 4));
        let wanted = Past {
            attempts: 3,
            is_suspect: true,
        };
        assert_eq!(past, wanted);
    }
}
