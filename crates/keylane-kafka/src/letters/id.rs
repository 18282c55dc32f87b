//! The id of a dead letter. Pure.

use std::fmt;
use std::str::FromStr;

use keylane_rt::text_in_debug;
use thiserror::Error;

/// The id of a dead letter: where it is in the topic of the letters, as `<partition>:<offset>`.
///
/// # Examples
///
/// ```
/// use keylane_kafka::LetterId;
///
/// let id: LetterId = "2:1200".parse()?;
/// assert_eq!((id.partition, id.offset), (2, 1_200));
/// assert_eq!(id.to_string(), "2:1200");
/// assert!(id > "1:7000".parse()?);
/// # Ok::<(), keylane_kafka::NoLetterId>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LetterId {
    /// The number of the partition.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: u64,
}

/// The text is not the id of a dead letter.
#[derive(Error, Clone, Copy, PartialEq, Eq)]
#[error("the id of a dead letter must have the form `<partition>:<offset>`")]
pub struct NoLetterId;

text_in_debug! { NoLetterId }

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.partition, self.offset)
    }
}

impl FromStr for LetterId {
    type Err = NoLetterId;

    fn from_str(text: &str) -> Result<Self, NoLetterId> {
        let (partition, offset) = text.split_once(':').ok_or(NoLetterId)?;
        // The protocol has signed numbers.
        let offset: i64 = number(offset)?;
        Ok(Self {
            partition: number(partition)?,
            offset: offset.unsigned_abs(),
        })
    }
}

/// Parses digits, without a sign.
fn number<T: FromStr>(text: &str) -> Result<T, NoLetterId> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().map_err(|_| NoLetterId),
        false => Err(NoLetterId),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_id_is_refused() {
        for text in [
            "",
            "1",
            ":",
            "1:",
            ":1",
            "-1:1",
            "1:-1",
            "+1:1",
            " 1:1",
            "1:1:1",
            "2147483648:1",
            "1:9223372036854775808",
        ] {
            assert_eq!(text.parse::<LetterId>(), Err(NoLetterId), "{text}");
        }
        let highest = "2147483647:9223372036854775807";
        assert_eq!(highest.parse::<LetterId>().unwrap().to_string(), highest);
    }
}
