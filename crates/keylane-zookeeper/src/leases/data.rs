//! The data of the node of a lease.

use std::time::Duration;

/// What the node of a lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseData {
    pub(crate) owner: String,
    /// The name of the node of its grant.
    pub(crate) guard: String,
    /// Rounded up to milliseconds.
    pub(crate) ttl: Duration,
}

impl LeaseData {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let millis = self.ttl.as_nanos().div_ceil(1_000_000);
        format!("1 {} {} {millis}", self.guard, self.owner).into_bytes()
    }

    /// Returns `None` if these are not the data of a lease.
    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(data).ok()?.split(' ');
        if words.next()? != "1" {
            return None;
        }
        let (guard, owner) = (words.next()?.to_owned(), words.next()?.to_owned());
        let ttl = Duration::from_millis(words.next()?.parse().ok()?);
        words.next().is_none().then_some(Self { owner, guard, ttl })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_come_back_and_others_are_known() {
        let data = LeaseData {
            owner: "12-abc".to_owned(),
            guard: "0a-7".to_owned(),
            ttl: Duration::from_micros(1_500),
        };
        let ttl = Duration::from_millis(2);
        let rounded = LeaseData {
            ttl,
            ..data.clone()
        };
        assert_eq!(LeaseData::decode(&data.encode()), Some(rounded));
        for other in ["", "1 a b", "2 a b 7", "1 a b c", "1 a b 7 8"] {
            assert_eq!(LeaseData::decode(other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(LeaseData::decode(&[0xff]), None);
    }
}
