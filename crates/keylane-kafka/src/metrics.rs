//! The metrics of partitions.

use std::collections::BTreeMap;

use keylane_metrics::{Figures, IfPublished, LabelNames, Labels, Metric, Row, published};

use crate::control::PartitionStatus;

const PARTITION: LabelNames = LabelNames::new(&["source", "topic", "partition"]);

const LAG: Metric = PARTITION.gauge(
    "keylane_source_lag",
    "Records from the committed offset to the end of the partition; 0 while that is not known.",
);
const OPEN: Metric = PARTITION.gauge(
    "keylane_source_partition_open",
    "Records that were handed over and have not settled.",
);
const BEYOND: Metric = PARTITION.gauge(
    "keylane_source_partition_beyond",
    "Offsets that have settled above the frontier, which an earlier record holds back.",
);
const PAUSED: Metric = PARTITION.gauge(
    "keylane_source_partition_paused",
    "Whether an operator has paused the partition.",
);
const FULL: Metric = PARTITION.gauge(
    "keylane_source_partition_full",
    "Whether the partition hands over nothing, because the metadata of a commit is full.",
);
const FAILING: Metric = PARTITION.gauge(
    "keylane_source_partition_failing",
    "Whether the partition cannot be read now.",
);

static ROWS: [Row<PartitionStatus>; 6] = [
    Row::new(LAG, |status| status.lag().unwrap_or_default()),
    Row::new(OPEN, |status| status.open as u64),
    Row::new(BEYOND, |status| status.beyond),
    Row::new(PAUSED, |status| u64::from(status.is_paused)),
    Row::new(FULL, |status| u64::from(status.is_full)),
    Row::new(FAILING, |status| u64::from(status.failure.is_some())),
];

/// Returns the metrics that this crate publishes with the feature `metrics`, for each partition
/// that this process has. What the dispatcher knows of the source is in
/// [`keylane::watching::published_metrics`].
pub fn published_metrics() -> Vec<Metric> {
    published(&ROWS)
}

/// What a source publishes of its partitions.
#[derive(Debug)]
pub(crate) struct PartitionFigures {
    source: String,
    shown: IfPublished<BTreeMap<(String, i32), Figures<PartitionStatus>>>,
}

impl PartitionFigures {
    pub(crate) fn new(source: String) -> Self {
        let shown = IfPublished::new(BTreeMap::new);
        Self { source, shown }
    }

    /// Publishes the partitions that are here now.
    pub(crate) fn show(&mut self, partitions: &[PartitionStatus]) {
        let source = &self.source;
        self.shown.with_mut(|shown| {
            let mut before = std::mem::take(shown);
            for status in partitions {
                let place = (status.topic.clone(), status.partition);
                let figures = before.remove(&place);
                let figures = figures.unwrap_or_else(|| Self::look_up(source, status));
                figures.show(|| status.clone());
                shown.insert(place, figures);
            }
            // The others are dropped: the gauges of partitions that are gone fall to zero.
        });
    }

    fn look_up(source: &str, status: &PartitionStatus) -> Figures<PartitionStatus> {
        let labels = Labels::new()
            .with("source", source)
            .with("topic", &status.topic)
            .with("partition", &status.partition.to_string());
        Figures::new(&ROWS, &labels)
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn status(partition: i32, committed: u64, log_end: Option<u64>) -> PartitionStatus {
        PartitionStatus {
            topic: "orders".to_owned(),
            partition,
            position: committed,
            committed: Some(committed),
            end: committed + 2,
            log_end,
            open: 2,
            beyond: 1,
            is_paused: partition == 1,
            overtaken: None,
            failure: None,
            is_full: false,
        }
    }

    #[test]
    fn the_lag_of_each_partition_is_published_and_falls_to_zero_when_it_is_gone() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let mut figures = PartitionFigures::new("kafka billing orders".to_owned());
        let mut show = |partitions: &[PartitionStatus]| {
            metrics::with_local_recorder(&recorder, || figures.show(partitions));
            handle.render()
        };
        let line = |name: &str, partition: i32, value: u64| {
            format!(
                "keylane_source_{name}{{source=\"kafka billing orders\",topic=\"orders\",\
                 partition=\"{partition}\"}} {value}\n"
            )
        };
        let text = show(&[status(0, 10, Some(17)), status(1, 5, None)]);
        assert!(text.contains(&line("lag", 0, 7)), "{text}");
        assert!(text.contains(&line("lag", 1, 0)), "it is not known: {text}");
        assert!(text.contains(&line("partition_paused", 1, 1)), "{text}");
        let text = show(&[status(0, 12, Some(17))]);
        assert!(text.contains(&line("lag", 0, 5)), "{text}");
        assert!(text.contains(&line("partition_open", 0, 2)), "{text}");
        assert!(text.contains(&line("partition_open", 1, 0)), "{text}");
        // Another process has it, and it comes back.
        let text = show(&[]);
        assert!(text.contains(&line("lag", 0, 0)), "{text}");
        let text = show(&[status(0, 13, Some(17))]);
        assert!(text.contains(&line("lag", 0, 4)), "{text}");
    }
}
