//! What is sent.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A message: the same in all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its key.
    pub key: u32,
    /// The how manieth of its key it is.
    pub number: u32,
}

impl Message {
    /// As eight bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.key.to_le_bytes());
        bytes[4..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// From eight bytes.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let four = bytes[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(four)
        };
        Self {
            key: word(0),
            number: word(4),
        }
    }
}

/// All messages of a measurement: the keys take turns.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// How many.
    pub messages: u64,
    /// On how many keys.
    pub keys: u64,
}

impl Traffic {
    /// The messages at these places.
    pub fn slice(&self, places: Range<u64>) -> Vec<Message> {
        places
            .map(|place| Message {
                key: (place % self.keys) as u32,
                number: (place / self.keys) as u32,
            })
            .collect()
    }

    /// All of them, so many at a time.
    pub fn chunks(&self, of: u64) -> impl Iterator<Item = Vec<Message>> {
        let all = *self;
        (0..all.messages.div_ceil(of))
            .map(move |chunk| all.slice(chunk * of..((chunk + 1) * of).min(all.messages)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let message = Message {
            key: 70_000,
            number: 3,
        };
        assert_eq!(Message::from_bytes(&message.to_bytes()), message);
    }

    #[test]
    fn keys_take_turns() {
        let traffic = Traffic {
            messages: 5,
            keys: 2,
        };
        let all: Vec<_> = traffic.chunks(3).flatten().collect();
        let all: Vec<_> = all.iter().map(|each| (each.key, each.number)).collect();
        assert_eq!(all, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]);
    }
}
