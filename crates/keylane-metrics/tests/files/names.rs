//! What all crates publish, and how it is named.

use std::collections::BTreeSet;

use keylane_metrics::{Kind, Metric};

/// What each crate publishes.
pub(crate) fn by_crate() -> Vec<(&'static str, Vec<Metric>)> {
    vec![
        ("keylane", keylane::watching::published_metrics()),
        ("keylane-kafka", keylane_kafka::published_metrics()),
        ("keylane-inbox", keylane_inbox::published_metrics()),
        ("keylane-spool", keylane_spool::published_metrics()),
        ("keylane-leases", keylane_leases::published_metrics()),
        ("keylane-leader", keylane_leader::published_metrics()),
        ("keylane-redis", keylane_redis::published_metrics()),
        ("keylane-sql", keylane_sql::published_metrics()),
    ]
}

pub(crate) fn all() -> Vec<Metric> {
    by_crate().into_iter().flat_map(|(_, all)| all).collect()
}

/// The labels that there are. None of them has as many values as there are keys.
const LABELS: [&str; 15] = [
    "call",
    "dispatcher",
    "election",
    "inbox",
    "kind",
    "outcome",
    "part",
    "partition",
    "rate",
    "reason",
    "source",
    "spool",
    "state",
    "stream",
    "topic",
];

#[test]
fn names_and_labels_follow_one_scheme() {
    let mut seen = BTreeSet::new();
    for metric in all() {
        let name = metric.name();
        assert!(seen.insert(name), "{name} is published twice");
        assert!(name.starts_with("keylane_"), "{name}");
        assert_eq!(
            metric.kind() == Kind::Counter,
            name.ends_with("_total"),
            "{name}"
        );
        // An age is a gauge in seconds.
        assert!(
            metric.kind() != Kind::Histogram || name.ends_with("_seconds"),
            "{name}"
        );
        assert!(metric.help().ends_with('.'), "{name}: {}", metric.help());
        for label in metric.label_names() {
            assert!(LABELS.contains(label), "{name}: {label}");
        }
    }
}

#[test]
fn each_crate_has_its_own_prefix() {
    let prefixes = [
        ("keylane-kafka", &["keylane_source_"][..]),
        ("keylane-inbox", &["keylane_inbox_"]),
        ("keylane-spool", &["keylane_spool_"]),
        ("keylane-leases", &["keylane_lease_"]),
        ("keylane-leader", &["keylane_leader_"]),
        (
            "keylane-redis",
            &[
                "keylane_source_list_",
                "keylane_source_stream_",
                "keylane_rate_",
            ],
        ),
        ("keylane-sql", &["keylane_source_inbox_"]),
    ];
    for (name, metrics) in by_crate() {
        let Some((_, prefixes)) = prefixes.iter().find(|(of, _)| *of == name) else {
            continue;
        };
        for metric in metrics {
            let has = |prefix: &&str| metric.name().starts_with(prefix);
            assert!(prefixes.iter().any(has), "{name}: {metric:?}");
        }
    }
}
