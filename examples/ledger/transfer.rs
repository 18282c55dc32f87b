//! A transfer, and the two messages that it becomes.

use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane_inbox::NewMessage;
use keylane_sql::Claim;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) number: i32,
    pub(crate) from: i32,
    pub(crate) to: i32,
    pub(crate) cents: i64,
}

/// What is to be done for a transfer, each by the lane of one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Side {
    /// The account that pays: it books the debit and sends the credit, or refuses.
    Debit,
    /// The account that is paid.
    Credit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) side: Side,
    pub(crate) transfer: Transfer,
}

impl Entry {
    pub(crate) fn account(&self) -> i32 {
        match self.side {
            Side::Debit => self.transfer.from,
            Side::Credit => self.transfer.to,
        }
    }

    /// Its key is the account: what happens to one account happens in order.
    pub(crate) fn message(&self) -> Result<NewMessage, BoxError> {
        let key = self.account().to_be_bytes().to_vec();
        Ok(NewMessage::new(key, serde_json::to_vec(self)?))
    }
}

/// An entry and the claim under which it was handed over, which the commit needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimed {
    pub(crate) claim: Claim,
    pub(crate) entry: Entry,
}

impl Claimed {
    pub(crate) fn decode(raw: &RawMessage) -> Result<Self, BoxError> {
        Ok(Self {
            claim: Claim::of(raw).ok_or("it comes from an inbox in tables")?,
            entry: serde_json::from_slice(&raw.payload)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_message_of_its_account() {
        let transfer = Transfer {
            number: 1,
            from: 2,
            to: 3,
            cents: 400,
        };
        for (side, account) in [(Side::Debit, 2), (Side::Credit, 3)] {
            let entry = Entry { side, transfer };
            let message = entry.message().unwrap();
            assert_eq!(message.key[..], i32::to_be_bytes(account));
            let read: Entry = serde_json::from_slice(&message.payload).unwrap();
            assert_eq!(read, entry);
        }
    }
}
