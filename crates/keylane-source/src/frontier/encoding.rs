//! The settled offsets beyond a position, as bytes.
//!
//! | bytes | hold |
//! | --- | --- |
//! | 1 | the version, 1, in the upper four bits; below the layout: 0 is runs, 1 is bits |
//! | 1 to 10 | the position, as LEB128: seven bits in each byte, the lowest first |
//! | any | the body |
//! | 4 | FNV-1a of all before, 32 bits, the lowest byte first |
//!
//! The body of runs: lengths as LEB128, in turn of a run that is not settled, starting at the
//! position, and of one that is. None is 0. The body of bits: one for each offset after the
//! position, which itself is not settled; the lowest first, 1 is settled, and the last byte is not
//! 0. Nothing beyond is no bytes at all.

use std::cmp::Ordering;
use std::ops::Range;

use super::error::DecodeError;
use super::limits::HIGHEST;
use super::runs::joined;

const VERSION: u8 = 1;

const CHECKSUM: usize = size_of::<u32>();

/// What comes before the body: the longest LEB128 of 64 bits and a byte.
const LONGEST_HEAD: usize = 1 + 10;

/// The bytes that [`Frontier::encode`](super::Frontier::encode) has written.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The bytes, for [`Beyond::decode`](super::Beyond::decode).
    pub bytes: Vec<u8>,
    /// The lowest offset beyond the position that did not fit. Those below it are in the bytes,
    /// those above it are not.
    pub left_out: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Runs = 0,
    Bits = 1,
}

/// What is between the head and the checksum.
struct Body {
    layout: Layout,
    bytes: Vec<u8>,
    /// One past the last offset in it.
    end: u64,
    left_out: Option<u64>,
}

impl Body {
    /// Whether it holds more than another one, or the same in fewer bytes.
    fn is_better_than(&self, other: &Self) -> bool {
        let reach = |body: &Self| body.left_out.unwrap_or(u64::MAX);
        match reach(self).cmp(&reach(other)) {
            Ordering::Greater => true,
            Ordering::Equal => self.bytes.len() < other.bytes.len(),
            Ordering::Less => false,
        }
    }
}

/// The runs are sorted, do not touch, and start above the position.
pub(super) fn encode<I>(position: u64, runs: impl Fn() -> I, most_bytes: usize) -> Encoded
where
    I: Iterator<Item = Range<u64>>,
{
    let mut bytes = Vec::with_capacity(LONGEST_HEAD);
    bytes.push(0);
    push_leb128(&mut bytes, position);
    let room = most_bytes.saturating_sub(bytes.len() + CHECKSUM);
    let mut body = as_runs(position, runs(), room);
    // Bits are made only where they can win: there may be billions of them.
    let bits = (body.end - position).saturating_sub(1).div_ceil(8);
    if body.left_out.is_some() || bits < body.bytes.len() as u64 {
        let bits = as_bits(position, runs(), room);
        if bits.is_better_than(&body) {
            body = bits;
        }
    }
    if body.bytes.is_empty() {
        bytes.clear();
    } else {
        bytes[0] = VERSION << 4 | body.layout as u8;
        bytes.append(&mut body.bytes);
        bytes.extend(checksum(&bytes).to_le_bytes());
    }
    Encoded {
        bytes,
        left_out: body.left_out,
    }
}

fn as_runs(position: u64, runs: impl Iterator<Item = Range<u64>>, room: usize) -> Body {
    let mut bytes = Vec::new();
    let (mut end, mut left_out) = (position, None);
    for run in runs {
        let before = bytes.len();
        push_leb128(&mut bytes, run.start - end);
        // As much of it as there are bytes left for its length.
        let left = room.saturating_sub(bytes.len()).min(10) as u32;
        let longest = 1_u64.checked_shl(left * 7).map_or(u64::MAX, |end| end - 1);
        let len = (run.end - run.start).min(longest);
        if len == 0 {
            bytes.truncate(before);
        } else {
            push_leb128(&mut bytes, len);
            end = run.start + len;
        }
        if run.start + len < run.end {
            left_out = Some(run.start + len);
            break;
        }
    }
    Body {
        layout: Layout::Runs,
        bytes,
        end,
        left_out,
    }
}

fn as_bits(position: u64, runs: impl Iterator<Item = Range<u64>>, room: usize) -> Body {
    let mut bytes = Vec::new();
    let (mut end, mut left_out) = (position, None);
    // Of the first bit, and of the first that does not fit.
    let first = position + 1;
    let full = first.saturating_add((room as u64).saturating_mul(8));
    for run in runs {
        for bit in run.start - first..run.end.min(full).saturating_sub(first) {
            let byte = (bit / 8) as usize;
            if byte >= bytes.len() {
                bytes.resize(byte + 1, 0);
            }
            bytes[byte] |= 1 << (bit % 8);
        }
        if run.end > full {
            left_out = Some(run.start.max(full));
            break;
        }
        end = run.end;
    }
    Body {
        layout: Layout::Bits,
        bytes,
        end,
        left_out,
    }
}

pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Range<u64>>, DecodeError> {
    let Some(first) = bytes.first() else {
        return Ok(Vec::new());
    };
    let layout = match (first >> 4, first & 0b1111) {
        (VERSION, 0) => Layout::Runs,
        (VERSION, 1) => Layout::Bits,
        _ => return Err(DecodeError::Unsupported),
    };
    let (content, stored) = bytes.split_last_chunk().ok_or(DecodeError::Corrupt)?;
    if checksum(content) != u32::from_le_bytes(*stored) {
        return Err(DecodeError::Corrupt);
    }
    let runs = content.get(1..).and_then(|mut rest| {
        let position = take_leb128(&mut rest).filter(|position| *position <= HIGHEST)?;
        match layout {
            Layout::Runs => from_runs(position, rest),
            Layout::Bits => from_bits(position, rest),
        }
    });
    runs.ok_or(DecodeError::Corrupt)
}

fn from_runs(position: u64, mut body: &[u8]) -> Option<Vec<Range<u64>>> {
    let (mut runs, mut at) = (Vec::new(), position);
    while !body.is_empty() {
        let mut edge = || {
            let len = take_leb128(&mut body).filter(|len| *len > 0)?;
            at = at.checked_add(len).filter(|at| *at <= HIGHEST)?;
            Some(at)
        };
        runs.push(edge()?..edge()?);
    }
    Some(runs)
}

fn from_bits(position: u64, body: &[u8]) -> Option<Vec<Range<u64>>> {
    let start = position + 1;
    let bits = u64::try_from(body.len()).ok()?.checked_mul(8)?;
    // Of the last byte at least one bit is set: what is above is none of an encoding.
    let unset = body.last().map_or(0, |last| last.leading_zeros());
    let end = start.checked_add(bits)? - u64::from(unset);
    (end <= HIGHEST).then_some(())?;
    let offsets = (0..).zip(body).flat_map(|(place, byte)| {
        let settled = (0..8).filter(move |bit| byte >> bit & 1 == 1);
        settled.map(move |bit| start + place * 8 + bit)
    });
    Some(joined(offsets.map(|offset| offset..offset + 1)).collect())
}

fn push_leb128(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 1 << 7 {
        bytes.push(value as u8 | 1 << 7);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// None: it is cut off, or has more than 64 bits.
fn take_leb128(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte >> 7 == 0 {
            return Some(value);
        }
    }
    None
}

/// Each step takes different sums to different sums, so a change of one byte changes the result.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| {
        (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
#[expect(clippy::single_range_in_vec_init, reason = "lists of runs")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POSITION: u64 = 1_000;

    fn encoded(runs: &[Range<u64>], most_bytes: usize) -> Encoded {
        encode(POSITION, || runs.iter().cloned(), most_bytes)
    }

    /// A head, this body, and a checksum that is right.
    fn sealed(first: u8, position: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first];
        push_leb128(&mut bytes, position);
        bytes.extend(body);
        bytes.extend(checksum(&bytes).to_le_bytes());
        bytes
    }

    /// What lies below an offset.
    fn clipped(runs: &[Range<u64>], end: u64) -> Vec<Range<u64>> {
        let clipped = runs.iter().map(|run| run.start..run.end.min(end));
        clipped.filter(|run| !run.is_empty()).collect()
    }

    /// What older versions have written must stay readable, so these bytes never change.
    #[test]
    fn the_format_is_as_described() {
        let cases: [(&[Range<u64>], &[u8]); 4] = [
            (&[], &[]),
            // A run of 300 that is not settled, and one of 5.
            (
                &[1_300..1_305],
                &[0x10, 0xe8, 0x07, 0xac, 0x02, 5, 0x83, 0x8c, 0xe5, 0xb3],
            ),
            // Three bits, where runs would take 2 bytes.
            (
                &[1_001..1_004],
                &[0x11, 0xe8, 0x07, 0b111, 0x12, 0x5e, 0x72, 0x4f],
            ),
            // Runs would take 6 bytes.
            (
                &[1_001..1_002, 1_003..1_004, 1_009..1_011],
                &[0x11, 0xe8, 0x07, 0b101, 0b11, 0x3d, 0x26, 0x05, 0xda],
            ),
        ];
        for (runs, bytes) in cases {
            let encoded = encoded(runs, usize::MAX);
            assert_eq!(encoded.bytes, bytes, "{:#04x?}", encoded.bytes);
            assert_eq!(encoded.left_out, None);
            assert_eq!(decode(bytes).as_deref(), Ok(runs));
        }
    }

    /// Test vectors of the FNV authors.
    #[test]
    fn the_checksum_is_fnv_1a() {
        assert_eq!(checksum(b""), 0x811c_9dc5);
        assert_eq!(checksum(b"a"), 0xe40c_292c);
        assert_eq!(checksum(b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn what_does_not_fit_is_left_out_from_the_top() {
        // 3 for the head, 4 for the checksum.
        let one = [1_200..1_500];
        for (most_bytes, len, left_out) in [
            (0, 0, Some(1_200)),
            (9, 0, Some(1_200)),
            (10, 10, Some(1_327)),
            (11, 11, None),
            (usize::MAX, 11, None),
        ] {
            let encoded = encoded(&one, most_bytes);
            assert_eq!((encoded.bytes.len(), encoded.left_out), (len, left_out));
        }
        // One byte each as runs, two bits each as bits.
        let many: Vec<_> = (0..100).map(|n| 1_001 + 2 * n..1_002 + 2 * n).collect();
        let bits = encoded(&many, 7 + 10);
        assert_eq!(bits.bytes[0], 0x11);
        assert_eq!((bits.bytes.len(), bits.left_out), (17, Some(1_081)));
        // Bits reach as far as 1,080, and runs farther.
        let mut mixed = vec![1_001..1_005];
        mixed.extend((0..100).map(|n| 1_105 + 200 * n..1_205 + 200 * n));
        let runs = encoded(&mixed, 7 + 10);
        assert_eq!(runs.bytes[0], 0x10);
        assert_eq!((runs.bytes.len(), runs.left_out), (17, Some(1_905)));
    }

    #[test]
    fn the_highest_offsets_are_written_and_read() {
        for position in [0, HIGHEST - 100] {
            let runs = [HIGHEST - 50..HIGHEST - 30, HIGHEST - 2..HIGHEST];
            let encoded = encode(position, || runs.iter().cloned(), usize::MAX);
            assert_eq!(decode(&encoded.bytes).as_deref(), Ok(&runs[..]));
            for most_bytes in 0..encoded.bytes.len() {
                let encoded = encode(position, || runs.iter().cloned(), most_bytes);
                let written = clipped(&runs, encoded.left_out.unwrap_or(0));
                assert_eq!(decode(&encoded.bytes), Ok(written));
            }
        }
        // As runs and as bits, of which the last byte may reach beyond them.
        let last = vec![HIGHEST - 1..HIGHEST];
        for (first, body) in [(0x10, &[1, 1]), (0x11, &[0, 1])] {
            let far = HIGHEST - [2, 10][usize::from(first == 0x11)];
            assert_eq!(decode(&sealed(first, far, body)), Ok(last.clone()));
            for position in [far + 1, HIGHEST, HIGHEST + 1, u64::MAX - 9, u64::MAX] {
                let bytes = sealed(first, position, body);
                assert_eq!(decode(&bytes), Err(DecodeError::Corrupt), "{position}");
            }
        }
    }

    /// A run that was read is written as bits where they are shorter, and those must be read again.
    #[test]
    fn what_was_read_can_be_written_at_the_end_of_the_offsets() {
        for position in HIGHEST - 30..=HIGHEST {
            for body in [[1, 1], [1, 7], [9, 1], [20, 2]] {
                if let Ok(runs) = decode(&sealed(0x10, position, &body)) {
                    let again = encode(position, || runs.iter().cloned(), usize::MAX);
                    assert_eq!(decode(&again.bytes), Ok(runs), "{position}");
                }
            }
        }
    }

    /// Of the position and the first length only one can take 10 bytes.
    #[test]
    fn something_fits_into_25_bytes() {
        const HALF: u64 = 1 << 62;
        for (position, start) in [(HALF, HIGHEST - 2), (HALF - 1, HIGHEST - 2), (0, HALF)] {
            let runs = [start..HIGHEST];
            let encoded = encode(position, || runs.iter().cloned(), 25);
            let written = clipped(&runs, encoded.left_out.unwrap_or(u64::MAX));
            assert!(!written.is_empty());
            assert_eq!(decode(&encoded.bytes), Ok(written));
        }
    }

    #[test]
    fn what_is_no_encoding_is_refused() {
        let corrupt: [&[u8]; 10] = [
            &[0x10],
            &[0x11, 0, 0, 0],
            &[0x10, 0, 0, 0, 0, 0],
            // No position; one that is cut off; one of 65 bits; one of 11 bytes.
            &sealed(0x10, 0, &[])[..1],
            &sealed(0x10, 1 << 7, &[])[..2],
            &sealed(0x10, 0, &[0x80; 11]),
            &sealed(
                0x10,
                0,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 1],
            ),
            // A run without its pair; a run of nothing; a run beyond all offsets.
            &sealed(0x10, 0, &[1]),
            &sealed(0x10, 0, &[1, 0]),
            &sealed(0x10, HIGHEST - 1, &[1, 1]),
        ];
        for bytes in corrupt {
            assert_eq!(decode(bytes), Err(DecodeError::Corrupt), "{bytes:x?}");
        }
        for first in (0..=255).filter(|first| ![0x10, 0x11].contains(first)) {
            let bytes = sealed(first, 0, &[1, 1]);
            assert_eq!(decode(&bytes), Err(DecodeError::Unsupported));
        }
    }

    /// Sorted runs above the position, from next to each other to as far as there are offsets.
    fn runs() -> impl Strategy<Value = Vec<Range<u64>>> {
        let len = || prop_oneof![8 => 1..4_u64, 4 => 1..300_u64, 1 => 1..1_u64 << 57];
        prop::collection::vec((len(), len()), 0..60).prop_map(|lens| {
            let mut end = POSITION;
            let runs = lens.into_iter().map(|(gap, len)| {
                let start = end + gap;
                end = start + len;
                start..end
            });
            runs.collect()
        })
    }

    fn room() -> impl Strategy<Value = usize> {
        prop_oneof![0..30_usize, 0..200_usize, Just(usize::MAX)]
    }

    proptest! {
        #![proptest_config(testkit_cases::cases(2_000))]

        #[test]
        fn what_fits_comes_back(runs in runs(), most_bytes in room()) {
            let encoded = encoded(&runs, most_bytes);
            prop_assert!(encoded.bytes.len() <= most_bytes);
            let end = encoded.left_out.unwrap_or(u64::MAX);
            prop_assert_eq!(decode(&encoded.bytes), Ok(clipped(&runs, end)));
            if encoded.left_out.is_some() {
                prop_assert!(runs.iter().any(|run| run.contains(&end)));
            }
            // Neither form alone reaches farther, or as far in fewer bytes.
            let room = most_bytes.saturating_sub(3 + CHECKSUM);
            let mut forms = vec![as_runs(POSITION, runs.iter().cloned(), room)];
            if room < 1_000 {
                forms.push(as_bits(POSITION, runs.iter().cloned(), room));
            }
            for form in forms {
                let reach = form.left_out.unwrap_or(u64::MAX);
                prop_assert!(reach <= end);
                let len = if form.bytes.is_empty() { 0 } else { form.bytes.len() + 3 + CHECKSUM };
                prop_assert!(reach < end || len >= encoded.bytes.len());
            }
        }

        #[test]
        fn a_changed_bit_is_found(runs in runs(), place: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = encoded(&runs, 200).bytes;
            prop_assume!(!bytes.is_empty());
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn a_cut_end_is_found(runs in runs(), place: prop::sample::Index) {
            let bytes = encoded(&runs, 200).bytes;
            prop_assume!(!bytes.is_empty());
            // But for one in 2^32.
            let len = place.index(bytes.len());
            prop_assert_eq!(decode(&bytes[..len]).is_err(), len > 0);
        }

        #[test]
        fn any_bytes_are_an_error_or_a_value(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }

        /// As above, past the checksum.
        #[test]
        fn any_body_is_an_error_or_sorted_runs(
            is_bits: bool,
            position in prop_oneof![
                any::<u64>(),
                0..=HIGHEST,
                HIGHEST - 500..=HIGHEST + 1,
                HIGHEST - 30..=HIGHEST,
                u64::MAX - 500..=u64::MAX,
            ],
            body in prop_oneof![
                any::<Vec<u8>>(),
                prop::collection::vec(0..4_u8, 0..100),
                prop::collection::vec(1..12_u8, 2..5),
                prop::collection::vec(prop_oneof![Just(0xff_u8), Just(1), any::<u8>()], 0..40),
            ],
        ) {
            let bytes = sealed(0x10 | u8::from(is_bits), position, &body);
            if let Ok(runs) = decode(&bytes) {
                let mut end = position;
                for run in &runs {
                    prop_assert!(end < run.start && run.start < run.end);
                    end = run.end;
                }
                let memory = runs.len() * size_of::<Range<u64>>();
                prop_assert!(memory <= 64 * bytes.len());
                let again = encode(position, || runs.iter().cloned(), usize::MAX);
                prop_assert_eq!(decode(&again.bytes), Ok(runs));
            }
        }
    }
}
