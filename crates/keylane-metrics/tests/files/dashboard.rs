//! The dashboard shows what is published, and all of it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::names::all;
use crate::query::Query;

const DASHBOARD: &str = include_str!("../../grafana/keylane.json");

/// What no panel shows, and why.
const UNSHOWN: [(&str, &str); 3] = [
    (
        "keylane_spool_recovered_total",
        "it changes at the start only",
    ),
    (
        "keylane_spool_out_of_order_total",
        "it is a defect of the sink, and an alert fires at the first one",
    ),
    (
        "keylane_inbox_compactions_total",
        "the size of the file shows it",
    ),
];

/// Each expression, with what its legend shows.
pub(crate) fn expressions() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    targets
        .flatten()
        .map(|target| (text(&target["expr"]), text(&target["legendFormat"])))
        .collect()
}

/// The queries behind the choices at the top.
fn variables() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    variables
        .filter_map(|variable| variable["definition"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn each_expression_names_what_is_published() {
    let all = all();
    for (expression, legend) in expressions() {
        let query = Query::parse(&expression);
        assert!(!query.series.is_empty(), "{expression}");
        query.metrics(&all);
        // What the legend shows is what the series are grouped by.
        for part in legend.split("{{").skip(1) {
            let label = part.split("}}").next().unwrap();
            assert!(query.labels.contains(label), "{legend}: {expression}");
        }
    }
    let variables = variables();
    assert_eq!(variables.len(), 2);
    for definition in variables {
        let query = Query::parse(&definition);
        let (_, label) = definition.trim_end_matches(')').split_once(", ").unwrap();
        let [metric] = query.metrics(&all)[..] else {
            panic!("{definition}");
        };
        assert!(metric.label_names().contains(&label), "{definition}");
    }
}

#[test]
fn each_metric_is_shown() {
    let all = all();
    let shown: BTreeSet<&str> = expressions()
        .iter()
        .flat_map(|(expression, _)| Query::parse(expression).metrics(&all))
        .map(|metric| metric.name())
        .collect();
    let unshown: BTreeSet<&str> = UNSHOWN.iter().map(|(name, _)| *name).collect();
    for metric in &all {
        let name = metric.name();
        assert_ne!(shown.contains(name), unshown.contains(name), "{name}");
    }
}

#[test]
fn panels_do_not_overlap_and_have_numbers_of_their_own() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{panel}");
            }
        }
    }
}
