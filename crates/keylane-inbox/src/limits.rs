//! The limits of a message.

use keylane_rt::text_in_debug;
use thiserror::Error;

use crate::message::{MessageId, NewMessage};

/// The limits of the parts of a message.
///
/// | part | default | at most |
/// | --- | --- | --- |
/// | key | 1 KiB | 64 KiB |
/// | payload | 16 MiB | 1 GiB |
/// | headers, together | 64 KiB | 1 MiB |
/// | headers, their number | 256 | 256 |
/// | message id | 256 bytes | 256 bytes |
/// | messages of one call | 65,536 | 65,536 |
/// | bytes of one call | 1 GiB and one message | the same |
///
/// An empty key and an empty payload are allowed, an empty id is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) key_bytes: usize,
    pub(crate) payload_bytes: usize,
    pub(crate) headers_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            key_bytes: 1 << 10,
            payload_bytes: 16 << 20,
            headers_bytes: 64 << 10,
        }
    }
}

impl Limits {
    /// With larger keys the dispatcher's memory per key would be the bound, and not the store.
    pub(crate) const MOST_KEY_BYTES: usize = 64 << 10;
    /// Far below the largest value that the store can keep.
    pub(crate) const MOST_PAYLOAD_BYTES: usize = 1 << 30;
    pub(crate) const MOST_HEADERS_BYTES: usize = 1 << 20;
    const MOST_HEADERS: usize = 256;
    const MOST_MESSAGES: usize = 1 << 16;
    const MOST_BYTES: usize = 1 << 30;

    /// Checks that one call may store all of them.
    pub(crate) fn check(&self, messages: &[NewMessage]) -> Result<(), LimitError> {
        if messages.len() > Self::MOST_MESSAGES {
            return Err(LimitError::Messages {
                messages: messages.len(),
                limit: Self::MOST_MESSAGES,
            });
        }
        let mut before = 0;
        for (index, message) in messages.iter().enumerate() {
            self.check_one(index, message)?;
            if before > Self::MOST_BYTES {
                return Err(LimitError::Bytes {
                    limit: Self::MOST_BYTES,
                });
            }
            before += message.bytes();
        }
        Ok(())
    }

    fn check_one(&self, index: usize, message: &NewMessage) -> Result<(), LimitError> {
        let headers = message.headers.iter();
        let headers = headers.map(|header| header.name.len() + header.value.len());
        for (part, bytes, limit) in [
            ("key", message.key.len(), self.key_bytes),
            ("payload", message.payload.len(), self.payload_bytes),
            ("headers", headers.sum(), self.headers_bytes),
        ] {
            if bytes > limit {
                return Err(LimitError::TooLarge {
                    index,
                    part,
                    bytes,
                    limit,
                });
            }
        }
        if message.headers.len() > Self::MOST_HEADERS {
            return Err(LimitError::Headers {
                index,
                headers: message.headers.len(),
                limit: Self::MOST_HEADERS,
            });
        }
        let id = message.id.as_ref().map(|id| id.as_bytes().len());
        match id {
            Some(0) => Err(LimitError::EmptyId { index }),
            Some(bytes) if bytes > MessageId::MAX_BYTES => Err(LimitError::TooLarge {
                index,
                part: "message id",
                bytes,
                limit: MessageId::MAX_BYTES,
            }),
            _ => Ok(()),
        }
    }
}

/// Checks that one call may store all of these, by the default limits. For a store of your own.
///
/// # Errors
///
/// The first limit that a message exceeds.
pub fn check(messages: &[NewMessage]) -> Result<(), LimitError> {
    Limits::default().check(messages)
}

/// The limit that a message exceeds. No message of its call was stored.
#[non_exhaustive]
#[derive(Error, Clone, PartialEq, Eq)]
pub enum LimitError {
    /// A part of a message is too large.
    #[error(
        "the {part} of message {index} has {bytes} bytes, but the limit is {limit}: make it \
         smaller, or raise the limit where the inbox is built"
    )]
    TooLarge {
        /// The index of the message in the call, from 0.
        index: usize,
        /// `key`, `payload`, `headers` or `message id`.
        part: &'static str,
        /// Its size.
        bytes: usize,
        /// Its limit.
        limit: usize,
    },
    /// A message has too many headers.
    #[error("message {index} has {headers} headers, but the limit is {limit}: send fewer")]
    Headers {
        /// The index of the message in the call, from 0.
        index: usize,
        /// The number of headers.
        headers: usize,
        /// Their limit.
        limit: usize,
    },
    /// The id is empty.
    #[error("the id of message {index} is empty: leave it out, or give it one that is unique")]
    EmptyId {
        /// The index of the message in the call, from 0.
        index: usize,
    },
    /// A call has too many messages.
    #[error("the call has {messages} messages, but the limit is {limit}: send them in parts")]
    Messages {
        /// The number of messages.
        messages: usize,
        /// Their limit.
        limit: usize,
    },
    /// A call has too many bytes.
    #[error("the call has more than {limit} bytes, which is the limit: send them in parts")]
    Bytes {
        /// Their limit.
        limit: usize,
    },
}

text_in_debug! { LimitError: TooLarge, Headers, EmptyId, Messages, Bytes }

#[cfg(test)]
mod tests {
    use super::*;

    fn message(key: usize, payload: usize) -> NewMessage {
        NewMessage::new(vec![0; key], vec![0; payload])
    }

    fn check(message: NewMessage) -> Result<(), LimitError> {
        Limits::default().check(&[NewMessage::new("fits", ""), message])
    }

    fn part(result: Result<(), LimitError>) -> &'static str {
        match result {
            Err(LimitError::TooLarge { index: 1, part, .. }) => part,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_smallest_and_the_largest_fit() {
        assert_eq!(check(message(0, 0)), Ok(()));
        assert_eq!(check(message(1 << 10, 16 << 20)), Ok(()));
        assert_eq!(check(message(0, 0).id(vec![0; 256])), Ok(()));
        assert_eq!(Limits::default().check(&[]), Ok(()));
    }

    #[test]
    fn one_more_does_not() {
        assert_eq!(part(check(message((1 << 10) + 1, 0))), "key");
        assert_eq!(part(check(message(1 << 20, 0))), "key");
        assert_eq!(part(check(message(0, (16 << 20) + 1))), "payload");
        assert_eq!(part(check(message(0, 64 << 20))), "payload");
        assert_eq!(part(check(message(0, 0).id(vec![0; 257]))), "message id");
        let large = message(0, 0).header("a", vec![0; 64 << 10]);
        assert_eq!(part(check(large)), "headers");
        let mut many = message(0, 0);
        for _ in 0..257 {
            many = many.header("", "");
        }
        assert!(matches!(check(many), Err(LimitError::Headers { .. })));
        let unnamed = check(message(0, 0).id(""));
        assert_eq!(unnamed, Err(LimitError::EmptyId { index: 1 }));
        let many = vec![message(0, 0); (1 << 16) + 1];
        let many = Limits::default().check(&many);
        assert!(matches!(many, Err(LimitError::Messages { .. })));
    }

    #[test]
    fn the_bytes_of_a_call_are_limited() {
        // One buffer, counted often.
        let many = vec![message(0, 16 << 20); 66];
        let many = Limits::default().check(&many);
        assert!(matches!(many, Err(LimitError::Bytes { .. })));
    }
}
