//! What is sent.

use std::ops::Range;

/// The bytes of a payload, and of a key.
pub const PAYLOAD: usize = 32;
const KEY: usize = 10;

/// A message: the same in all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its key.
    pub key: u32,
    /// The how manieth of its key it is.
    pub number: u32,
}

impl Message {
    /// 32 bytes of text: the key, a colon, the number, and what fills it up.
    pub fn payload(self) -> String {
        format!("{:010}:{:010}:__________", self.key, self.number)
    }

    /// The key as it stands in a payload, before the first colon.
    pub fn key_text(self) -> String {
        format!("{:010}", self.key)
    }

    /// From a payload; `None` if these are other bytes.
    pub fn from_payload(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != PAYLOAD {
            return None;
        }
        Some(Self {
            key: decimal(&bytes[..KEY])?,
            number: decimal(&bytes[KEY + 1..2 * KEY + 1])?,
        })
    }
}

fn decimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u32::from(digit))
    })
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
            number: u32::MAX,
        };
        let payload = message.payload();
        assert_eq!(payload.len(), PAYLOAD);
        assert!(payload.starts_with(&format!("{}:", message.key_text())));
        assert_eq!(Message::from_payload(payload.as_bytes()), Some(message));
        for other in ["", &payload[1..], &payload.replace('7', "x")] {
            assert_eq!(Message::from_payload(other.as_bytes()), None, "{other}");
        }
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
