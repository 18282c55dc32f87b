//! What is stored.

/// A message that is accepted.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its place among all messages, from 1.
    pub sequence: u64,
    /// What orders it.
    pub key: Vec<u8>,
    /// What is stored of it: the length of the key, the key, and noise that does not compress.
    pub record: Vec<u8>,
    /// What tells a duplicate.
    pub id: [u8; 16],
}

/// A message that is read to be handled.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Its lane.
    pub lane: u64,
    /// Its place.
    pub sequence: u64,
    /// Its key.
    pub key: Vec<u8>,
}

/// Makes messages.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// How many keys there are. As many as messages: each has one of its own.
    pub keys: u64,
    /// The bytes of a record.
    pub bytes: usize,
    /// Whether each message has a key of its own.
    pub unique: bool,
}

impl Traffic {
    /// A message by its place.
    pub fn message(&self, sequence: u64) -> Message {
        let of_key = if self.unique {
            sequence
        } else {
            scrambled(sequence) % self.keys
        };
        let key = format!("key-{:016x}", scrambled(of_key ^ 0x5eed)).into_bytes();
        let mut record = Vec::with_capacity(self.bytes + 8);
        record.push(key.len() as u8);
        record.extend_from_slice(&key);
        let mut noise = sequence;
        while record.len() < self.bytes {
            noise = scrambled(noise);
            record.extend_from_slice(&noise.to_le_bytes());
        }
        record.truncate(self.bytes);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&scrambled(!sequence).to_be_bytes());
        id[8..].copy_from_slice(&sequence.to_be_bytes());
        Message {
            sequence,
            key,
            record,
            id,
        }
    }
}

/// The key within a record.
pub fn key_of(record: &[u8]) -> &[u8] {
    &record[1..=usize::from(record[0])]
}

/// Splitmix64.
fn scrambled(value: u64) -> u64 {
    let mut value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
