//! The metrics of a list.

use keylane_metrics::{Figures, LabelNames, Labels, Metric, Row, published};

const SOURCE: LabelNames = LabelNames::new(&["source"]);

const WAITING: Metric = SOURCE.gauge(
    "keylane_source_list_waiting",
    "Elements that wait in the list. Each process shows all: take the maximum.",
);

static ROWS: [Row<ListFigures>; 1] = [Row::shared(WAITING, |list| list.waiting)];

/// The metrics of lists.
pub(crate) fn published_of_lists() -> Vec<Metric> {
    published(&ROWS)
}

/// What the answer to each round trip of a worker says of the list. Nothing is asked for it.
#[derive(Debug)]
pub(super) struct ListFigures {
    pub(super) waiting: u64,
}

impl ListFigures {
    /// Looks up the handles.
    pub(super) fn look_up(source: &str) -> Figures<Self> {
        Figures::new(&ROWS, &Labels::new().with("source", source))
    }
}
