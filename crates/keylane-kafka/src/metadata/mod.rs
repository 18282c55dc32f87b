//! The offsets that are done beyond a committed one, as the metadata of the commit.
//!
//! The format is that of Confluent's Parallel Consumer 0.5. The text is Base64 of one byte that
//! names the encoding, and a body. Offsets are relative to the committed one; numbers are
//! big-endian.
//!
//! | byte | body |
//! | --- | --- |
//! | `l`, `o` | a bitmap: its length in bits as a number of 2 or 4 bytes; the bits; a byte 0 |
//! | `n`, `e` | lengths of 2 or 4 bytes, in turn of a run that is not done and of one that is |
//! | `a`, `s`, `J`, `p` | a frame of Zstandard with a body of `l`, `o`, `n` or `e` |
//!
//! In a bitmap each offset has one bit, the lowest bit of each byte first; 1 means done.
//!
//! Offsets that never arrive, because the log was compacted or a transaction was aborted, count as
//! done.

mod body;

mod error;
pub use error::DecodeError;

use std::io::Read;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use body::Encoding;
use keylane_source::frontier::Beyond;

/// The longest metadata that a broker accepts by default: its `offset.metadata.max.bytes`.
pub const MOST_CHARS: usize = 4_096;

/// Shorter bodies are not compressed: compression would make them longer, or hardly shorter.
const COMPRESSED_FROM: usize = 64;

/// The level at which Parallel Consumer compresses.
const LEVEL: i32 = 3;

/// The longest frame after decompression: without a limit a few bytes could fill the memory.
const MOST_DECOMPRESSED: u64 = 16 << 20;

/// The result of [`encode`].
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The metadata. It is empty if no offset is done beyond the committed one.
    pub text: String,
    /// The lowest done offset that did not fit. The text contains the done offsets below it. Those
    /// from it on are delivered again to the next owner of the partition.
    pub left_out: Option<u64>,
}

/// Writes the offsets that are done beyond a committed one, in the shortest of the encodings.
///
/// Pass the runs that [`Frontier::beyond`](keylane::source::frontier::Frontier::beyond) returns:
/// sorted, not touching, and above `committed`. If they need more than `most_chars`, only the first
/// of them are written.
///
/// # Examples
///
/// ```
/// use keylane_kafka::metadata::{MOST_CHARS, encode};
///
/// // 100 is not done, 101 is.
/// let encoded = encode(100, || std::iter::once(101..102), MOST_CHARS);
/// assert_eq!(encoded.text, "bgABAAE=");
/// assert_eq!(encoded.left_out, None);
/// ```
pub fn encode<I>(committed: u64, runs: impl Fn() -> I, most_chars: usize) -> Encoded
where
    I: Iterator<Item = Range<u64>>,
{
    let count = runs().count();
    if count == 0 {
        return Encoded::default();
    }
    let of_first = |count: usize| {
        let text = shortest(committed, || runs().take(count))?;
        (text.len() <= most_chars).then_some(text)
    };
    if let Some(text) = of_first(count) {
        return Encoded {
            text,
            left_out: None,
        };
    }
    // More runs make a longer text, except for small differences by compression.
    let (mut fits, mut does_not, mut text) = (0, count, String::new());
    while fits + 1 < does_not {
        let middle = fits.midpoint(does_not);
        match of_first(middle) {
            Some(shorter) => (fits, text) = (middle, shorter),
            None => does_not = middle,
        }
    }
    Encoded {
        text,
        left_out: runs().nth(fits).map(|run| run.start),
    }
}

/// Reads the metadata that [`encode`], or Parallel Consumer, has written for a committed offset. An
/// empty text means that no offset is done beyond it.
///
/// # Errors
///
/// Returns [`DecodeError`] if another program wrote the text, or if it is damaged. A consumer that
/// continues without it receives the offsets that were done again, and loses none.
///
/// # Examples
///
/// ```
/// use keylane_kafka::metadata::decode;
///
/// let beyond = decode(100, "bgABAAE=")?;
/// assert!(beyond.contains(101) && !beyond.contains(102));
/// # Ok::<(), keylane_kafka::metadata::DecodeError>(())
/// ```
pub fn decode(committed: u64, text: &str) -> Result<Beyond, DecodeError> {
    if text.is_empty() {
        return Ok(Beyond::default());
    }
    let bytes = STANDARD.decode(text).map_err(|_| DecodeError::NotBase64)?;
    let (magic, body) = bytes.split_first().ok_or(DecodeError::Damaged)?;
    if let Some(encoding) = Encoding::plain(*magic) {
        return encoding.read(committed, body);
    }
    match Encoding::compressed(*magic) {
        Some(encoding) => encoding.read(committed, &decompressed(body)?),
        None => Err(DecodeError::Foreign(*magic)),
    }
}

/// Encodes the runs in the shortest encoding. Returns `None` if no encoding can hold them.
fn shortest<I>(committed: u64, runs: impl Fn() -> I) -> Option<String>
where
    I: Iterator<Item = Range<u64>>,
{
    let mut best: Option<(u8, Vec<u8>)> = None;
    let mut offer = |magic: u8, body: Vec<u8>| {
        let is_better = |(_, best): &(u8, Vec<u8>)| body.len() < best.len();
        if best.as_ref().is_none_or(is_better) {
            best = Some((magic, body));
        }
    };
    for encoding in Encoding::ALL {
        let Some(body) = encoding.write(committed, runs()) else {
            continue;
        };
        if body.len() >= COMPRESSED_FROM
            && let Ok(compressed) = zstd::bulk::compress(&body, LEVEL)
        {
            offer(encoding.magic_compressed(), compressed);
        }
        offer(encoding.magic(), body);
    }
    let (magic, body) = best?;
    Some(STANDARD.encode([&[magic], &body[..]].concat()))
}

fn decompressed(frame: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut body = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(frame).map_err(|_| DecodeError::Damaged)?;
    let read = decoder.take(MOST_DECOMPRESSED + 1).read_to_end(&mut body);
    read.map_err(|_| DecodeError::Damaged)?;
    match body.len() as u64 > MOST_DECOMPRESSED {
        true => Err(DecodeError::Damaged),
        false => Ok(body),
    }
}
