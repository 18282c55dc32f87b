//! The data of the node of a lease.

use std::time::Duration;

/// What the node of a lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseData {
    pub(crate) owner: String,
    /// The name of the node of its grant.
    pub(crate) guard: String,
    /// Rounded up to milliseconds, as the next.
    pub(crate) ttl: Duration,
    /// The time-out of its session: how long it lasts after its process has died.
    pub(crate) session: Duration,
}

impl LeaseData {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let millis = |time: Duration| time.as_nanos().div_ceil(1_000_000);
        let (ttl, session) = (millis(self.ttl), millis(self.session));
        let Self { owner, guard, .. } = self;
        format!("1 {guard} {owner} {ttl} {session}").into_bytes()
    }

    /// Returns the longest time that it may last without a renewal.
    pub(crate) fn longest(&self) -> Duration {
        self.ttl.max(self.session)
    }

    /// Returns `None` if these are not the data of a lease.
    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(data).ok()?.split(' ');
        if words.next()? != "1" {
            return None;
        }
        let (guard, owner) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut time = || Some(Duration::from_millis(words.next()?.parse().ok()?));
        let (ttl, session) = (time()?, time()?);
        words.next().is_none().then_some(Self {
            owner,
            guard,
            ttl,
            session,
        })
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
            session: Duration::from_secs(4),
        };
        let ttl = Duration::from_millis(2);
        let rounded = LeaseData {
            ttl,
            ..data.clone()
        };
        assert_eq!(LeaseData::decode(&data.encode()), Some(rounded));
        for other in ["", "1 a b 7", "2 a b 7 8", "1 a b c 8", "1 a b 7 8 9"] {
            assert_eq!(LeaseData::decode(other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(LeaseData::decode(&[0xff]), None);
    }
}
