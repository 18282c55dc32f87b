//! What a recorder is told.

use keylane_metrics::{Figures, LabelNames, Labels, Metric, Row};
use metrics_exporter_prometheus::PrometheusBuilder;

const SOURCE: LabelNames = LabelNames::new(&["source"]);
const HELD: Metric = SOURCE.gauge("keylane_source_held", "Messages that are here.");
const WAITING: Metric = SOURCE.gauge("keylane_source_list_waiting", "Messages that wait.");

/// Messages that are here, and in the list.
static ROWS: [Row<(u64, u64)>; 2] = [
    Row::new(HELD, |(held, _)| *held),
    Row::shared(WAITING, |(_, waiting)| *waiting),
];

#[test]
fn what_two_things_have_is_added_up_and_what_both_see_is_not() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let look_up = || Figures::new(&ROWS, &Labels::new().with("source", "orders"));
    let [one, other] = metrics::with_local_recorder(&recorder, || [look_up(), look_up()]);
    let shows = |held: u64, waiting: u64| {
        let text = recorder.handle().render();
        for (name, value) in [("held", held), ("list_waiting", waiting)] {
            let line = format!("keylane_source_{name}{{source=\"orders\"}} {value}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    };
    one.show(|| (3, 100));
    other.show(|| (2, 100));
    shows(5, 100);
    one.show(|| (4, 90));
    shows(6, 90);
    drop(one);
    shows(2, 0);
    other.show(|| (2, 80));
    shows(2, 80);
    drop(other);
    shows(0, 0);
}

#[test]
fn without_a_recorder_nothing_is_published() {
    let look_up = || Figures::new(&ROWS, &Labels::new().with("source", "orders"));
    let none = metrics::NoopRecorder;
    assert!(!metrics::with_local_recorder(&none, look_up).is_published());
    let recorder = PrometheusBuilder::new().build_recorder();
    assert!(metrics::with_local_recorder(&recorder, look_up).is_published());
}
