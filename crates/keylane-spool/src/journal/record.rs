//! The encoding of a message on the disk.

// version 1 | epoch: count 4, drawn 4 | key length 4 | headers 2 | key
// | for each header: name length 2, name, value length 4, value | payload | CRC-32 4
//
// Numbers are little-endian. The sequence is the key of the table, the spool is in its meta table.
// The check at the end covers everything before it, and the sequence. Version 1 had no drawn part
// of the epoch.

use bytes::Bytes;

use crate::headers::Headers;
use crate::id::{Epoch, MessageId};
use crate::message::Spooled;

const VERSION: u8 = 2;
const WITHOUT_DRAWN: u8 = 1;
const FIXED: usize = 1 + 4 + 4 + 4 + 2;
const CHECK: usize = 4;

/// Returns whether lengths and counts fit their fields.
pub(crate) fn is_encodable(key: &Bytes, headers: &Headers) -> bool {
    u32::try_from(key.len()).is_ok()
        && u16::try_from(headers.len()).is_ok()
        && headers.iter().all(|(name, value)| {
            u16::try_from(name.len()).is_ok() && u32::try_from(value.len()).is_ok()
        })
}

/// Returns the length of the result of [`encode`].
pub(crate) fn encoded_len(key: &Bytes, payload: &Bytes, headers: &Headers) -> usize {
    let headers: usize = headers
        .iter()
        .map(|(name, value)| 6 + name.len() + value.len())
        .sum();
    FIXED + key.len() + headers + payload.len() + CHECK
}

/// Encodes a message. It must be [encodable](is_encodable).
pub(super) fn encode(message: &Spooled) -> Vec<u8> {
    let Spooled {
        id,
        key,
        payload,
        headers,
    } = message;
    let mut bytes = Vec::with_capacity(encoded_len(key, payload, headers));
    bytes.push(VERSION);
    bytes.extend(id.epoch.count.to_le_bytes());
    bytes.extend(id.epoch.drawn.to_le_bytes());
    bytes.extend((key.len() as u32).to_le_bytes());
    bytes.extend((headers.len() as u16).to_le_bytes());
    bytes.extend_from_slice(key);
    for (name, value) in headers.iter() {
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(value);
    }
    bytes.extend_from_slice(payload);
    let check = crc32(id.sequence, &bytes);
    bytes.extend(check.to_le_bytes());
    bytes
}

/// Decodes a message, or returns what is wrong with the bytes.
pub(super) fn decode(spool: u64, sequence: u64, bytes: &[u8]) -> Result<Spooled, &'static str> {
    let (body, check) = bytes.split_last_chunk::<CHECK>().ok_or("a record is cut")?;
    let is_known = |version: &u8| [WITHOUT_DRAWN, VERSION].contains(version);
    if !body.first().is_none_or(is_known) {
        return Err("a record has an unknown version");
    }
    if crc32(sequence, body) != u32::from_le_bytes(*check) {
        return Err("the checksum of a record does not match");
    }
    let mut rest = Rest(body);
    let [version] = rest.array()?;
    let epoch = Epoch {
        count: u32::from_le_bytes(rest.array()?),
        drawn: match version {
            WITHOUT_DRAWN => 0,
            _ => u32::from_le_bytes(rest.array()?),
        },
    };
    let key_len = u32::from_le_bytes(rest.array()?);
    let count = u16::from_le_bytes(rest.array()?);
    let key = Bytes::copy_from_slice(rest.slice(key_len as usize)?);
    let mut headers = Headers::default();
    for _ in 0..count {
        let name_len = u16::from_le_bytes(rest.array()?);
        let name = std::str::from_utf8(rest.slice(name_len.into())?)
            .map_err(|_| "the name of a header is not UTF-8")?;
        let value_len = u32::from_le_bytes(rest.array()?);
        headers.add(
            name,
            Bytes::copy_from_slice(rest.slice(value_len as usize)?),
        );
    }
    Ok(Spooled {
        id: MessageId {
            spool,
            epoch,
            sequence,
        },
        key,
        payload: Bytes::copy_from_slice(rest.0),
        headers,
    })
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (array, rest) = self.0.split_first_chunk().ok_or("a record is cut")?;
        self.0 = rest;
        Ok(*array)
    }

    fn slice(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let (slice, rest) = self.0.split_at_checked(len).ok_or("a record is cut")?;
        self.0 = rest;
        Ok(slice)
    }
}

/// Returns the CRC-32, as in zlib, of the sequence and the bytes.
fn crc32(sequence: u64, bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        let index = (crc ^ u32::from(*byte)) & 0xFF;
        (crc >> 8) ^ TABLE[index as usize]
    };
    let crc = sequence.to_le_bytes().iter().fold(u32::MAX, step);
    !bytes.iter().fold(crc, step)
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                0xEDB8_8320 ^ (crc >> 1)
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use keylane_testkit::fuzz::{Target, about};
    use proptest::prelude::*;

    use super::*;
    use crate::core::support::entry;

    fn any_message() -> impl Strategy<Value = Spooled> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
        let headers = proptest::collection::vec((".{0,8}", bytes()), 0..4);
        (any::<(u64, (u32, u32), u64)>(), bytes(), bytes(), headers).prop_map(
            |((spool, (count, drawn), sequence), key, payload, list)| {
                let mut headers = Headers::default();
                for (name, value) in list {
                    headers.add(name, value);
                }
                Spooled {
                    id: MessageId {
                        spool,
                        epoch: Epoch { count, drawn },
                        sequence,
                    },
                    key,
                    payload,
                    headers,
                }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        #[test]
        fn what_is_encoded_is_decoded(message in any_message()) {
            let bytes = encode(&message);
            let Spooled { id, key, payload, headers } = &message;
            prop_assert_eq!(bytes.len(), encoded_len(key, payload, headers));
            prop_assert_eq!(decode(id.spool, id.sequence, &bytes), Ok(message.clone()));
        }

        #[test]
        fn a_change_is_noticed(
            message in any_message(),
            at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let mut bytes = encode(&message);
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(decode(message.id.spool, message.id.sequence, &bytes).is_err());
        }

        #[test]
        fn a_cut_or_a_wrong_place_is_noticed(
            message in any_message(),
            keep in any::<prop::sample::Index>(),
        ) {
            let bytes = encode(&message);
            let MessageId { spool, sequence, .. } = message.id;
            prop_assert!(decode(spool, sequence, &bytes[..keep.index(bytes.len())]).is_err());
            prop_assert!(decode(spool, sequence ^ 1, &bytes).is_err());
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(1, 1, &bytes);
        }
    }

    /// A record of the first version keeps its id.
    #[test]
    fn a_record_without_the_drawn_part_is_read() {
        let mut message = entry(7, b"key", 3).message;
        message.id.epoch = Epoch { count: 5, drawn: 0 };
        let mut bytes = encode(&message);
        bytes[0] = WITHOUT_DRAWN;
        bytes.drain(5..9);
        let at = bytes.len() - CHECK;
        let check = crc32(7, &bytes[..at]).to_le_bytes();
        bytes[at..].copy_from_slice(&check);
        assert_eq!(decode(message.id.spool, 7, &bytes), Ok(message));
    }

    #[test]
    fn fuzzed() {
        let seal = |record: &mut [u8]| {
            if let Some(at) = record.len().checked_sub(CHECK) {
                let (body, check) = record.split_at_mut(at);
                check.copy_from_slice(&crc32(7, body).to_le_bytes());
            }
        };
        let look = |bytes: &[u8]| match decode(1, 7, bytes) {
            Ok(message) => {
                assert_eq!(decode(1, 7, &encode(&message)), Ok(message.clone()));
                let names = message.headers.iter().map(|(name, _)| name.len());
                format!(
                    "key {}, {} headers of {}, payload {}",
                    about(message.key.len()),
                    about(message.headers.len()),
                    about(names.sum()),
                    about(message.payload.len()),
                )
            }
            Err(error) => format!(
                "{error}, {:?}",
                bytes.get(13).map(|count| about((*count).into()))
            ),
        };
        let message = |key: &'static str, payload: &'static str, headers: Headers| Spooled {
            id: MessageId {
                spool: 1,
                epoch: Epoch { count: 2, drawn: 3 },
                sequence: 7,
            },
            key: key.into(),
            payload: payload.into(),
            headers,
        };
        let mut headers = Headers::default();
        headers.add("name", "value");
        headers.add("", "");
        let seeds = [
            message("", "", Headers::default()),
            message("key", "payload", Headers::default()),
            message("key", "payload", headers),
        ];
        let target = Target {
            corpus: [env!("CARGO_MANIFEST_DIR"), "tests", "corpus", "spool"]
                .iter()
                .collect(),
            seeds: seeds.iter().map(encode).collect(),
            seal,
            look,
        };
        target.fuzz();
    }

    #[test]
    fn the_check_is_that_of_zlib() {
        let sequence = u64::from_le_bytes(*b"12345678");
        assert_eq!(crc32(sequence, b"9"), 0xCBF4_3926);
    }
}
