//! The claim of a message, and what a commit under it finds.

use std::fmt;

use bytes::Bytes;
use keylane_source::RawMessage;

use super::lane::LaneId;
use super::turn::{Claimed, MessageRef};
use super::uncommitted;

/// The claim under which a message was handed over. Keep it in the decoded message, and a handler
/// can [finish in a transaction](super::SqlInbox::begin).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    pub(super) worker: u64,
    pub(super) claimed: Claimed,
    pub(super) message: MessageRef,
    /// The opening of the source that handed it over.
    pub(super) opening: u64,
}

/// The size of an encoded claim: the lane, and five numbers.
const BYTES: usize = 32 + 5 * 8;

impl Claim {
    /// Returns the claim of a message, if the message comes from an inbox in tables.
    pub fn of(raw: &RawMessage) -> Option<Self> {
        let position = raw.position.as_deref()?;
        let (lane, numbers) = position.split_first_chunk::<32>()?;
        let mut numbers = numbers.chunks_exact(8);
        let mut number = || Some(u64::from_le_bytes(numbers.next()?.try_into().ok()?));
        let (worker, token) = (number()?, number()?);
        let (sequence, nonce) = (number()?, number()?);
        let opening = number()?;
        let lane = LaneId(*lane);
        Some(Self {
            worker,
            claimed: Claimed { lane, token },
            message: MessageRef { sequence, nonce },
            opening,
        })
        .filter(|_| position.len() == BYTES)
    }

    /// Returns the number of the claim. A later claim of the same key has a higher one, so another
    /// store can compare it.
    pub fn token(&self) -> u64 {
        self.claimed.token
    }

    pub(super) fn in_hand(&self) -> uncommitted::InHand {
        (self.opening, self.message.sequence)
    }

    pub(super) fn to_bytes(self) -> Bytes {
        let Claimed { lane, token } = self.claimed;
        let MessageRef { sequence, nonce } = self.message;
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(lane.0);
        for number in [self.worker, token, sequence, nonce, self.opening] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.into()
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("sequence", &self.message.sequence)
            .field("token", &self.claimed.token)
            .finish_non_exhaustive()
    }
}

/// The findings of a commit. It has committed if both are true, and rolled back otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish {
    pub(super) is_ours: bool,
    pub(super) was_here: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_written_down_and_read() {
        let claim = Claim {
            worker: 7,
            claimed: Claimed {
                lane: LaneId::of(b"key"),
                token: u64::MAX,
            },
            message: MessageRef {
                sequence: 3,
                nonce: 5,
            },
            opening: 9,
        };
        let mut raw = RawMessage::new("payload");
        assert_eq!(Claim::of(&raw), None);
        raw.position = Some(claim.to_bytes());
        assert_eq!(Claim::of(&raw), Some(claim));
        for end in 0..BYTES {
            raw.position = Some(claim.to_bytes().slice(..end));
            assert_eq!(Claim::of(&raw), None, "{end}");
        }
        raw.position = Some([&claim.to_bytes()[..], &[0]].concat().into());
        assert_eq!(Claim::of(&raw), None, "too long");
    }
}
