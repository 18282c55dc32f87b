//! A record: what is in it, and in which order the records are written.

/// Bytes of a payload.
pub const BYTES: usize = 100;

/// What a handler gets to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of its key.
    pub key: u32,
    /// Its place among the records of its key, from 0.
    pub number: u32,
}

impl Record {
    /// The payload: both numbers, the most significant byte first, and zeros.
    pub fn payload(self) -> [u8; BYTES] {
        let mut payload = [0; BYTES];
        payload[..4].copy_from_slice(&self.key.to_be_bytes());
        payload[4..8].copy_from_slice(&self.number.to_be_bytes());
        payload
    }

    /// The record of a payload; `None` if it is too short.
    pub fn of(payload: &[u8]) -> Option<Self> {
        Some(Self {
            key: u32::from_be_bytes(payload.get(..4)?.try_into().ok()?),
            number: u32::from_be_bytes(payload.get(4..8)?.try_into().ok()?),
        })
    }
}

/// What a topic is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// The keys take turns: record 0 of each key, then record 1 of each.
    Even {
        /// Records in all.
        records: u32,
        /// Keys.
        keys: u32,
    },
    /// Every other record is of key 0, the keys from 1 take turns in between.
    HalfHot {
        /// Records in all.
        records: u32,
        /// Keys, key 0 among them.
        keys: u32,
    },
    /// The same without those of key 0.
    ColdHalf {
        /// Records of `HalfHot` in all.
        records: u32,
        /// Keys, key 0 among them.
        keys: u32,
    },
}

impl Traffic {
    /// The records, in the order in which they are written.
    pub fn records(self) -> Box<dyn Iterator<Item = Record> + Send> {
        let turn = |i: u32, keys: u32, first: u32| Record {
            key: first + i % keys,
            number: i / keys,
        };
        match self {
            Self::Even { records, keys } => Box::new((0..records).map(move |i| turn(i, keys, 0))),
            Self::HalfHot { records, keys } => {
                let pair = move |i| [Record { key: 0, number: i }, turn(i, keys - 1, 1)];
                Box::new((0..records / 2).flat_map(pair))
            }
            Self::ColdHalf { records, keys } => {
                Box::new((0..records / 2).map(move |i| turn(i, keys - 1, 1)))
            }
        }
    }

    /// How many keys there are.
    pub fn keys(self) -> u32 {
        match self {
            Self::Even { keys, .. } | Self::HalfHot { keys, .. } | Self::ColdHalf { keys, .. } => {
                keys
            }
        }
    }

    /// How many records of keys from `first` there are.
    pub fn counted(self, first: u32) -> u64 {
        self.records().filter(|record| record.key >= first).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_says_which_record_it_is() {
        let record = Record {
            key: 70_000,
            number: 3,
        };
        let payload = record.payload();
        assert_eq!(payload.len(), 100);
        assert_eq!(Record::of(&payload), Some(record));
        assert_eq!(Record::of(&payload[..7]), None);
    }

    /// Otherwise the check of the order would count what is not broken.
    #[test]
    fn the_numbers_of_each_key_have_no_gap() {
        let (records, keys) = (1_001, 10);
        for (traffic, expected) in [
            (Traffic::Even { records, keys }, 1_001),
            (Traffic::HalfHot { records, keys }, 1_000),
            (Traffic::ColdHalf { records, keys }, 500),
        ] {
            let mut next = [0; 10];
            for record in traffic.records() {
                let next = &mut next[record.key as usize];
                assert_eq!(record.number, *next, "{traffic:?}");
                *next += 1;
            }
            let total: u32 = next.iter().sum();
            assert_eq!(total, expected, "{traffic:?}");
        }
        assert_eq!(Traffic::HalfHot { records, keys }.counted(1), 500);
    }
}
