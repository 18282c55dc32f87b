//! The id of an entry.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use keylane_rt::text_in_debug;
use thiserror::Error;

/// The id of an entry in its stream: `<milliseconds>-<number>`.
///
/// # Examples
///
/// ```
/// use keylane_redis::EntryId;
///
/// let id: EntryId = "1700000000000-3".parse()?;
/// assert_eq!(id.to_string(), "1700000000000-3");
/// assert!(id > "1700000000000-2".parse()?);
/// # Ok::<(), keylane_redis::NoEntryId>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    ms: u64,
    number: u64,
}

/// The text is not the id of an entry.
#[derive(Error, Clone, Copy, PartialEq, Eq)]
#[error("an entry id must have the form `<milliseconds>-<number>`")]
pub struct NoEntryId;

text_in_debug! { NoEntryId }

impl EntryId {
    #[cfg(test)]
    pub(super) fn new(ms: u64, number: u64) -> Self {
        Self { ms, number }
    }

    pub(super) fn of(text: &[u8]) -> Option<Self> {
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    /// Appends the id as text, like its `Display`, but faster: it is called for each message.
    pub(super) fn put(self, out: &mut BytesMut) {
        put_number(self.ms, out);
        out.extend_from_slice(b"-");
        put_number(self.number, out);
    }

    /// Returns when the entry was added, by the clock of the server, unless its producer has set
    /// the id.
    pub fn time(&self) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(self.ms))
    }

    /// Returns that time in milliseconds since 1970.
    pub fn millis(&self) -> u64 {
        self.ms
    }

    /// Returns the lowest id above this one. There is none above the highest.
    pub(super) fn after(self) -> Option<Self> {
        match (self.number.checked_add(1), self.ms.checked_add(1)) {
            (Some(number), _) => Some(Self { number, ..self }),
            (None, Some(ms)) => Some(Self { ms, number: 0 }),
            (None, None) => None,
        }
    }

    /// Returns the highest id below this one.
    pub(super) fn before(self) -> Self {
        match (self.number.checked_sub(1), self.ms.checked_sub(1)) {
            (Some(number), _) => Self { number, ..self },
            (None, Some(ms)) => Self {
                ms,
                number: u64::MAX,
            },
            (None, None) => self,
        }
    }
}

fn put_number(mut number: u64, out: &mut BytesMut) {
    let (mut digits, mut at) = ([0; 20], 20);
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

impl FromStr for EntryId {
    type Err = NoEntryId;

    fn from_str(text: &str) -> Result<Self, NoEntryId> {
        let (ms, number) = text.split_once('-').ok_or(NoEntryId)?;
        let number_of = |text: &str| text.parse().map_err(|_| NoEntryId);
        Ok(Self {
            ms: number_of(ms)?,
            number: number_of(number)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_as_the_server_orders_them() {
        let ids = [
            "0-0",
            "0-9",
            "0-10",
            "2-0",
            "10-0",
            "10-18446744073709551615",
        ];
        let parsed: Vec<EntryId> = ids.iter().map(|id| id.parse().unwrap()).collect();
        assert!(parsed.is_sorted());
        assert!(
            parsed
                .iter()
                .zip(ids)
                .all(|(id, text)| id.to_string() == text)
        );
        assert_eq!(
            EntryId::new(10, 0).before().to_string(),
            "9-18446744073709551615"
        );
        let highest = EntryId::new(u64::MAX, u64::MAX);
        assert_eq!(highest.after(), None);
        for id in [
            EntryId::new(7, 3),
            EntryId::new(7, u64::MAX),
            highest.before(),
        ] {
            assert_eq!(id.after().unwrap().before(), id);
        }
        for text in ["", "7", "7-", "-7", "7-x", "7-3-1"] {
            assert_eq!(text.parse::<EntryId>(), Err(NoEntryId), "{text}");
        }
    }
}
