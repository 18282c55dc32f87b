//! An order, as it comes in and as it is stored.

use keylane::error::BoxError;
use keylane::source::RawMessage;
use serde::{Deserialize, Serialize};

/// What a user orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// Names the order among all orders. Sent again with the same id, it is stored once. Without one it is
    /// given one, and is a new order each time.
    #[serde(default)]
    pub(crate) id: String,
    /// Orders of one user are handled one after the other.
    pub(crate) user: String,
    pub(crate) cents: u64,
    /// For the demo: how long the bank thinks about the payment.
    #[serde(default = "usual")]
    pub(crate) takes_ms: u64,
    /// For the demo: how often the bank declines the payment before it goes through.
    #[serde(default)]
    pub(crate) declined: u32,
}

/// How long the bank takes, unless the order says something else.
fn usual() -> u64 {
    2
}

impl Order {
    pub(crate) const MOST_USER_BYTES: usize = 1_024;
    pub(crate) const MOST_ID_BYTES: usize = 128;
    const MOST_CENTS: u64 = 100_000_000;
    const MOST_TAKES_MS: u64 = 60_000;

    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let within = |name, value: u64, least, most| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("`{name}` is from {least} to {most}"))
            }
        };
        within("cents", self.cents, 1, Self::MOST_CENTS)?;
        within("takes_ms", self.takes_ms, 0, Self::MOST_TAKES_MS)?;
        if !(1..=Self::MOST_USER_BYTES).contains(&self.user.len()) {
            return Err(format!("`user` has 1 to {} bytes", Self::MOST_USER_BYTES));
        }
        if self.id.len() > Self::MOST_ID_BYTES {
            return Err(format!("`id` has at most {} bytes", Self::MOST_ID_BYTES));
        }
        Ok(())
    }

    /// As it is stored.
    pub(crate) fn to_payload(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    pub(crate) fn from_payload(payload: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(payload)
    }

    /// The message of the inbox as an order.
    pub(crate) fn decode(raw: &RawMessage) -> Result<Self, BoxError> {
        Ok(Self::from_payload(&raw.payload)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_stored_and_read_as_it_came() {
        let order: Order = serde_json::from_str(r#"{"user":"ann","cents":250}"#).unwrap();
        assert_eq!((order.takes_ms, order.declined), (2, 0));
        assert_eq!(Order::from_payload(&order.to_payload()).unwrap(), order);
    }

    #[test]
    fn what_is_beyond_a_limit_is_named() {
        let order = |user: usize, cents| Order {
            id: String::new(),
            user: "u".repeat(user),
            cents,
            takes_ms: 0,
            declined: 0,
        };
        assert_eq!(order(1_024, 1).check(), Ok(()));
        assert!(order(1_025, 1).check().unwrap_err().contains("`user`"));
        assert!(order(0, 1).check().unwrap_err().contains("`user`"));
        assert!(order(1, 0).check().unwrap_err().contains("`cents`"));
    }
}
