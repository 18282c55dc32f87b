//! The bodies of the encodings. Pure.

use std::ops::Range;

use keylane_source::frontier::Beyond;

use super::error::DecodeError;

/// Most offsets that are written as bits. There may be billions, and then runs are shorter.
const MOST_BITS: u64 = 8 << 20;

/// The encoding of a body. A number is narrow in 2 bytes, and wide in 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Runs(Width),
    Bits(Width),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Narrow,
    Wide,
}

impl Width {
    fn bytes(self) -> usize {
        match self {
            Self::Narrow => 2,
            Self::Wide => 4,
        }
    }

    /// Writes a number if it fits. The format has signed numbers.
    fn push(self, body: &mut Vec<u8>, number: u64) -> Option<()> {
        match self {
            Self::Narrow => body.extend(i16::try_from(number).ok()?.to_be_bytes()),
            Self::Wide => body.extend(i32::try_from(number).ok()?.to_be_bytes()),
        }
        Some(())
    }

    /// Reads a number of this width. `None`: it is below 0.
    fn read(self, bytes: &[u8]) -> Option<u64> {
        let number = match self {
            Self::Narrow => i64::from(i16::from_be_bytes(bytes.try_into().ok()?)),
            Self::Wide => i64::from(i32::from_be_bytes(bytes.try_into().ok()?)),
        };
        u64::try_from(number).ok()
    }
}

impl Encoding {
    pub(super) const ALL: [Self; 4] = [
        Self::Runs(Width::Narrow),
        Self::Bits(Width::Narrow),
        Self::Runs(Width::Wide),
        Self::Bits(Width::Wide),
    ];

    /// Returns the byte that names the encoding.
    pub(super) fn magic(self) -> u8 {
        match self {
            Self::Bits(Width::Narrow) => b'l',
            Self::Bits(Width::Wide) => b'o',
            Self::Runs(Width::Narrow) => b'n',
            Self::Runs(Width::Wide) => b'e',
        }
    }

    /// Returns the byte that names the encoding with a compressed body.
    pub(super) fn magic_compressed(self) -> u8 {
        match self {
            Self::Bits(Width::Narrow) => b'a',
            Self::Bits(Width::Wide) => b's',
            Self::Runs(Width::Narrow) => b'J',
            Self::Runs(Width::Wide) => b'p',
        }
    }

    pub(super) fn plain(magic: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.magic() == magic)
    }

    pub(super) fn compressed(magic: u8) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.magic_compressed() == magic)
    }

    /// Writes the runs, which must be sorted, not touch, and not be below `committed`. Returns
    /// `None` if they do not fit.
    pub(super) fn write(
        self,
        committed: u64,
        runs: impl Iterator<Item = Range<u64>>,
    ) -> Option<Vec<u8>> {
        match self {
            Self::Runs(width) => write_runs(width, committed, runs),
            Self::Bits(width) => write_bits(width, committed, runs),
        }
    }

    pub(super) fn read(self, committed: u64, body: &[u8]) -> Result<Beyond, DecodeError> {
        let read = match self {
            Self::Runs(width) => read_runs(width, committed, body),
            Self::Bits(width) => read_bits(width, committed, body),
        };
        read.ok_or(DecodeError::Damaged)
    }
}

fn write_runs(
    width: Width,
    committed: u64,
    runs: impl Iterator<Item = Range<u64>>,
) -> Option<Vec<u8>> {
    let (mut body, mut end) = (Vec::new(), committed);
    for run in runs {
        width.push(&mut body, run.start.checked_sub(end)?)?;
        width.push(&mut body, run.end.checked_sub(run.start)?)?;
        end = run.end;
    }
    Some(body)
}

/// Reads runs. Ignores trailing bytes that are not a whole number, as Parallel Consumer does.
fn read_runs(width: Width, committed: u64, body: &[u8]) -> Option<Beyond> {
    let (mut runs, mut end, mut is_done) = (Vec::new(), committed, false);
    for length in body.chunks_exact(width.bytes()) {
        let start = end;
        end = start.checked_add(width.read(length)?)?;
        if is_done && start < end {
            runs.push(start..end);
        }
        is_done = !is_done;
    }
    Some(runs.into_iter().collect())
}

fn write_bits(
    width: Width,
    committed: u64,
    runs: impl Iterator<Item = Range<u64>>,
) -> Option<Vec<u8>> {
    let head = width.bytes();
    let (mut body, mut count) = (vec![0; head], 0);
    for run in runs {
        let (start, end) = (
            run.start.checked_sub(committed)?,
            run.end.checked_sub(committed)?,
        );
        if end > MOST_BITS {
            return None;
        }
        count = end;
        body.resize(head + end.div_ceil(8) as usize, 0);
        for bit in start..end {
            body[head + (bit / 8) as usize] |= 1 << (bit % 8);
        }
    }
    body.push(0);
    let mut length = Vec::new();
    width.push(&mut length, count)?;
    body[..head].copy_from_slice(&length);
    Some(body)
}

/// Reads bits. Bits that are missing at the end mean that their offsets are not done, as in
/// Parallel Consumer.
fn read_bits(width: Width, committed: u64, body: &[u8]) -> Option<Beyond> {
    let (count, bits) = body.split_at_checked(width.bytes())?;
    let count = width.read(count)?.min(bits.len() as u64 * 8);
    committed.checked_add(count)?;
    let (mut runs, mut from) = (Vec::new(), None);
    for bit in 0..count {
        let is_done = bits[(bit / 8) as usize] & 1 << (bit % 8) != 0;
        match (is_done, from) {
            (true, None) => from = Some(bit),
            (false, Some(start)) => {
                runs.push(committed + start..committed + bit);
                from = None;
            }
            _ => {}
        }
    }
    runs.extend(from.map(|start| committed + start..committed + count));
    Some(runs.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::iter;

    use keylane_source::frontier::Frontier;

    use super::*;

    /// A number that is one bit too large is refused, and never cut.
    #[test]
    fn numbers_fit_or_are_refused() {
        let one = |from: u64, len: u64| iter::once(from..from + len);
        for (width, most) in [(Width::Narrow, 32_767), (Width::Wide, 2_147_483_647_u64)] {
            let runs = Encoding::Runs(width);
            assert!(runs.write(0, one(most, most)).is_some());
            assert!(runs.write(0, one(most + 1, 1)).is_none());
            assert!(runs.write(0, one(1, most + 1)).is_none());
        }
        let bits = Encoding::Bits(Width::Narrow);
        assert_eq!(bits.write(0, one(1, 32_766)).unwrap().len(), 2 + 4_096 + 1);
        assert!(bits.write(0, one(1, 32_767)).is_none());
        let bits = Encoding::Bits(Width::Wide);
        assert!(bits.write(0, one(MOST_BITS - 1, 1)).is_some());
        assert!(bits.write(0, one(MOST_BITS, 1)).is_none());
    }

    #[test]
    fn offsets_end_where_numbers_do() {
        for encoding in Encoding::ALL {
            let run = Frontier::HIGHEST - 3..Frontier::HIGHEST;
            let body = encoding.write(Frontier::HIGHEST - 5, iter::once(run.clone()));
            let body = body.unwrap();
            let read = encoding.read(Frontier::HIGHEST - 5, &body).unwrap();
            assert!(read.runs().eq([run]));
            assert_eq!(
                encoding.read(u64::MAX - 2, &body),
                Err(DecodeError::Damaged)
            );
        }
    }
}
