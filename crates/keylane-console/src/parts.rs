//! The parts of a source: partitions, streams.

use std::collections::HashMap;

use serde::Serialize;

use crate::rows::{LaneName, cut};

/// A part of a source, such as a partition: what [`Builder::parts`](crate::Builder::parts) shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePart {
    /// The name of the part.
    pub name: String,
    /// The position below which all is settled, as its system writes positions: the offset of a
    /// partition, the id of an entry of a stream.
    pub frontier: Option<String>,
    /// How the source describes the position of the message at its frontier, as in the log:
    /// `orders/3@17` for Kafka, `orders:3/1700-0` for a stream. With it the page names the lane
    /// that has this message, and so holds the part back.
    pub front: Option<String>,
    /// How far it is behind the end of its log, in messages. Those that are held count.
    pub lag: Option<u64>,
    /// Messages that were handed over and have not settled.
    pub held: u64,
    /// Messages that are settled above the frontier: they wait for one that is not.
    pub beyond: u64,
    /// Whether an operator has paused it.
    pub is_paused: bool,
    /// Why it cannot be read now, or what else an operator must know.
    pub trouble: Option<String>,
}

/// A partition, with its lag from what is committed.
#[cfg(feature = "kafka")]
impl From<keylane_kafka::PartitionStatus> for SourcePart {
    fn from(status: keylane_kafka::PartitionStatus) -> Self {
        let full = "hands over no more: the metadata of its commit is near its limit";
        let overtaken = status.overtaken.map(|it| {
            let (from, to) = (it.committed, it.log_start);
            format!("retention has deleted the records from {from} to {to}")
        });
        let lag = status.lag();
        let failure = status.failure.map(|failure| failure.why);
        let name = format!("{}/{}", status.topic, status.partition);
        Self {
            front: Some(format!("{name}@{}", status.position)),
            name,
            frontier: Some(status.position.to_string()),
            lag,
            held: status.open as u64,
            beyond: status.beyond,
            is_paused: status.is_paused,
            trouble: failure
                .or_else(|| status.is_full.then(|| full.to_owned()))
                .or(overtaken),
        }
    }
}

/// A stream. Its lag is [`StreamPart::behind`](keylane_redis::StreamPart::behind): what its group has
/// read and not acked counts, as for a partition.
#[cfg(feature = "redis")]
impl From<keylane_redis::StreamPart> for SourcePart {
    fn from(part: keylane_redis::StreamPart) -> Self {
        let front = part.frontier.map(|id| format!("{}/{id}", part.stream));
        Self {
            front,
            lag: part.behind(),
            name: part.stream,
            frontier: part.frontier.map(|id| id.to_string()),
            held: part.open as u64,
            beyond: part.beyond,
            is_paused: false,
            trouble: part.failure,
        }
    }
}

/// The parts of an intake, by its name.
pub(crate) type Parts = Box<dyn Fn() -> Vec<SourcePart> + Send + Sync>;

/// Most parts of a source in the feed: the ones that are furthest behind.
const MOST: usize = 200;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct PartRow {
    name: String,
    frontier: Option<String>,
    lag: Option<u64>,
    held: u64,
    beyond: u64,
    is_paused: bool,
    trouble: Option<String>,
    /// The lane that has the message at its frontier.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<LaneName>,
}

/// A part, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PartName {
    pub(crate) intake: String,
    pub(crate) part: String,
}

/// The lanes that have these positions.
pub(crate) type Holders = HashMap<String, LaneName>;

/// The parts that an operator needs to see: those in trouble, then by their lag; and how many
/// others there are.
pub(crate) fn rows(mut parts: Vec<SourcePart>, holders: &Holders) -> (Vec<PartRow>, usize) {
    parts.sort_by(|a, b| {
        let rank = |part: &SourcePart| (part.trouble.is_some(), part.lag);
        rank(b).cmp(&rank(a)).then_with(|| a.name.cmp(&b.name))
    });
    let others = parts.len().saturating_sub(MOST);
    let shown = parts.into_iter().take(MOST).map(|part| PartRow {
        name: cut(&part.name),
        frontier: part.frontier.as_deref().map(cut),
        lag: part.lag,
        held: part.held,
        beyond: part.beyond,
        is_paused: part.is_paused,
        trouble: part.trouble.as_deref().map(cut),
        held_by: part.front.and_then(|front| holders.get(&front).cloned()),
    });
    (shown.collect(), others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_in_trouble_come_first_and_then_those_that_are_behind() {
        let part = |name: &str, lag: u64, trouble: Option<&str>| SourcePart {
            name: name.into(),
            lag: Some(lag),
            trouble: trouble.map(str::to_owned),
            ..SourcePart::default()
        };
        let parts = vec![
            part("c", 1, None),
            part("a", 9, None),
            part("b", 0, Some("no leader")),
        ];
        let (shown, others) = rows(parts, &Holders::new());
        let names: Vec<_> = shown.iter().map(|row| &*row.name).collect();
        assert_eq!((&names[..], others), (&["b", "a", "c"][..], 0));
        let many = vec![SourcePart::default(); MOST + 3];
        assert_eq!(rows(many, &Holders::new()).1, 3);
    }
}
