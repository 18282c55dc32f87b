//! A scrape of a process that uses the crates, as Prometheus reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::{Features, RawMessage};
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::Inbox;
use keylane_leader::{Candidate, Career, Elections, End, MemoryElections, Stop, Term};
use keylane_leases::{Leases, MemoryStore};
use keylane_metrics::{EVERY, Kind};
use keylane_redis::{Quota, Redis, SharedRate};
use keylane_spool::{SinkError, Spool, Spooled};
use keylane_testkit::reference::ReferenceServer;
use keylane_testkit::scenario::{until, within};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::names::all;
use crate::query::Query;
use crate::{alerts, dashboard};

/// A key that no label may show.
const SECRET: &str = "ada@example.org";

/// What comes as series only where a source reads from a server.
const SERVERS: [&str; 5] = [
    "keylane_source_lag",
    "keylane_source_partition_",
    "keylane_source_list_",
    "keylane_source_stream_",
    "keylane_source_inbox_",
];

struct Billing;

impl Career for Billing {
    type Error = std::io::Error;

    async fn inaugurate(&mut self, _: &Term) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn execute(&mut self, _: &Term, stop: Stop) -> Result<(), Self::Error> {
        stop.requested().await;
        Ok(())
    }

    async fn hand_over(&mut self, _: &Term, _: End) {}
}

/// The values of a scrape by the text of their series.
struct Scrape {
    text: String,
    values: BTreeMap<String, f64>,
}

impl Scrape {
    fn of(handle: &PrometheusHandle) -> Self {
        let text = handle.render();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("keylane_"))
            .map(|line| line.rsplit_once(' ').unwrap());
        let values = lines
            .map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
            .collect();
        Self { text, values }
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        let value = self.values.get(series);
        *value.unwrap_or_else(|| panic!("no {series} in {}", self.text))
    }

    /// The names of the metrics, with what Prometheus learns of their kind.
    fn kinds(&self) -> BTreeMap<&str, &str> {
        let lines = self.text.lines();
        lines
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .filter(|(name, _)| name.starts_with("keylane_"))
            .collect()
    }

    /// The pairs of labels and values of all series.
    fn labels(&self) -> BTreeSet<(String, String)> {
        let mut pairs = BTreeSet::new();
        for series in self.values.keys() {
            let Some((_, labels)) = series.split_once('{') else {
                continue;
            };
            for label in labels.trim_end_matches('}').split("\",") {
                let (name, value) = label.split_once("=\"").unwrap();
                pairs.insert((name.to_owned(), value.trim_end_matches('"').to_owned()));
            }
        }
        pairs
    }
}

#[tokio::test(start_paused = true)]
async fn a_scrape_has_what_the_crates_publish_and_the_values_of_their_statistics() {
    let builder = PrometheusBuilder::new().set_buckets(&[0.1, 1.0]).unwrap();
    let handle = builder.install_recorder().unwrap();

    let orders = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
        .name("orders")
        .on_exhausted(OnExhausted::Halt)
        .trace_keys()
        .spawn(|order: RawMessage| async move {
            match &order.payload[..] {
                b"bad" => Err("it is bad"),
                _ => Ok(()),
            }
        })
        .unwrap();
    let server = ReferenceServer::new(Features::new().survives_restart());
    let intake = orders
        .consume_with(server.source(), IntakeSettings::new())
        .unwrap();
    server.publish(["good", "good", "bad"].map(|text| RawMessage::new(text).key(SECRET)));
    server.publish([RawMessage::new("good").key("another")]);

    let directory = tempfile::tempdir().unwrap();
    let inbox = Inbox::open(directory.path().join("letters")).await.unwrap();
    inbox.accept(SECRET, "a letter").await.unwrap();

    let sink = |_: Vec<Spooled>| async move { Err::<(), _>(SinkError::failed("away")) };
    let spool = Spool::builder(sink).open().await.unwrap();
    spool.push(SECRET, "a message").await.unwrap();

    let leases = Leases::open(Arc::new(MemoryStore::new())).unwrap();
    let ttl = Duration::from_secs(10);
    let lease = within(leases.acquire(SECRET, ttl)).await.unwrap();

    let elections = Elections::open(Arc::new(MemoryElections::new())).unwrap();
    let office = Candidate::builder(&elections, "billing")
        .run(Billing)
        .unwrap();
    until(|| office.leads()).await;

    // It asks no server before it is used.
    let redis = Redis::at("redis://127.0.0.1:1/").unwrap();
    let rate = SharedRate::builder(&redis, "partner").total(Quota::per_second(1));
    let rate = rate.build().unwrap();

    until(|| intake.stats().acked == 3 && intake.stats().unconfirmed == 0).await;
    until(|| spool.stats().failures > 0).await;
    tokio::time::sleep(EVERY).await;
    let waits = |scrape: &Scrape| scrape.value("keylane_inbox_waiting{inbox=\"letters\"}") == 1.0;
    until(|| waits(&Scrape::of(&handle))).await;
    let scrape = Scrape::of(&handle);

    let dispatcher = |name: &str| scrape.value(&format!("{name}{{dispatcher=\"orders\"}}"));
    assert_eq!(dispatcher("keylane_accepted_total"), 4.0);
    assert_eq!(dispatcher("keylane_halted"), 1.0);
    assert_eq!(dispatcher("keylane_attempt_seconds_count"), 4.0);
    let source = |name: &str, more: &str| {
        let labels = format!("dispatcher=\"orders\",source=\"reference\"{more}");
        scrape.value(&format!("{name}{{{labels}}}"))
    };
    assert_eq!(source("keylane_source_received_total", ""), 4.0);
    let acked = source("keylane_source_settled_total", ",outcome=\"acked\"");
    assert_eq!(acked, 3.0);
    assert_eq!(source("keylane_source_held", ""), 1.0);
    assert_eq!(source("keylane_source_unconfirmed", ""), 0.0);
    assert_eq!(source("keylane_source_state", ",state=\"running\""), 1.0);
    assert_eq!(source("keylane_source_state", ",state=\"opening\""), 0.0);
    assert_eq!(scrape.value("keylane_spool_waiting{spool=\"memory\"}"), 1.0);
    let failing = "keylane_spool_failing{spool=\"memory\",part=\"sink\"}";
    assert_eq!(scrape.value(failing), 1.0);
    let leader = "keylane_leader_is_leader{election=\"billing\"}";
    assert_eq!(scrape.value(leader), 1.0);
    let terms = "keylane_leader_terms_total{election=\"billing\"}";
    assert_eq!(scrape.value(terms), 1.0);
    // That of the term, and ours.
    assert_eq!(scrape.value("keylane_lease_held"), 2.0);

    compare(&scrape);

    // What ends takes its share of the gauges back, and what was counted stays.
    drop(lease);
    within(async { office.close().await }).await;
    leases.close().await;
    elections.close().await;
    within(async { intake.stop().within(Duration::ZERO).await }).await;
    within(async { spool.close().within(Duration::ZERO).await }).await;
    drop((spool, rate, redis, leases, elections));
    tokio::time::sleep(2 * EVERY).await;
    let scrape = Scrape::of(&handle);
    for gone in [
        "keylane_source_held{dispatcher=\"orders\",source=\"reference\"}",
        "keylane_source_state{dispatcher=\"orders\",source=\"reference\",state=\"running\"}",
        "keylane_spool_waiting{spool=\"memory\"}",
        "keylane_leader_is_leader{election=\"billing\"}",
        "keylane_lease_held",
    ] {
        assert_eq!(scrape.value(gone), 0.0, "{gone}");
    }
    assert_eq!(scrape.value(terms), 1.0);

    // Another intake of the same source: its counters add up, and do not begin anew.
    let again = orders.consume(server.source()).unwrap();
    until(|| again.stats().received == 1).await;
    tokio::time::sleep(EVERY).await;
    let scrape = Scrape::of(&handle);
    let received = "keylane_source_received_total{dispatcher=\"orders\",source=\"reference\"}";
    assert_eq!(scrape.value(received), 5.0);
    within(async { orders.abort().await }).await;
}

/// Two inboxes, whose directories have the same name, are two series: one has a name of its own.
#[tokio::test(start_paused = true)]
async fn two_inboxes_are_told_apart() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _here = metrics::set_default_local_recorder(&recorder);
    let orders = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(|_: RawMessage| std::future::pending::<Result<(), std::io::Error>>())
        .unwrap();
    let parents = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [first, second] = parents
        .each_ref()
        .map(|parent| parent.path().join("orders"));
    let first = Inbox::open(first).await.unwrap();
    let second = Inbox::builder(second).name("returns").open().await.unwrap();
    let intakes = [&first, &second].map(|inbox| orders.consume(inbox.source()).unwrap());
    first.accept("a", "an order").await.unwrap();
    for number in ["one", "two"] {
        second.accept(number, "a return").await.unwrap();
    }
    until(|| intakes[0].stats().received == 1 && intakes[1].stats().received == 2).await;
    for (inbox, waiting) in [("orders", 1.0), ("returns", 2.0)] {
        let backlog = format!("keylane_inbox_waiting{{inbox=\"{inbox}\"}}");
        let received = format!("keylane_source_received_total{{source=\"inbox {inbox}\"}}");
        until(|| {
            let scrape = Scrape::of(&handle);
            let is = |series: &String| scrape.values.get(series) == Some(&waiting);
            is(&backlog) && is(&received)
        })
        .await;
    }
    within(async { orders.abort().await }).await;
}

/// Two spools in memory are two series, if one has a name.
#[tokio::test(start_paused = true)]
async fn two_spools_are_told_apart() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _here = metrics::set_default_local_recorder(&recorder);
    let sink = |_: Vec<Spooled>| std::future::pending::<Result<(), SinkError>>();
    let orders = Spool::builder(sink).open().await.unwrap();
    let mail = Spool::builder(sink).name("mail").open().await.unwrap();
    orders.push("a", "an order").await.unwrap();
    for key in ["a", "b"] {
        mail.push(key, "a letter").await.unwrap();
    }
    // Neither has a thread: what is due has happened.
    tokio::time::sleep(2 * EVERY).await;
    let scrape = Scrape::of(&handle);
    let waiting = |name| scrape.value(&format!("keylane_spool_waiting{{spool=\"{name}\"}}"));
    assert_eq!((waiting("memory"), waiting("mail")), (1.0, 2.0));
    for spool in [orders, mail] {
        within(async { spool.close().within(Duration::ZERO).await }).await;
    }
}

/// The names, kinds and labels are those of the lists, and what the files ask for is there.
fn compare(scrape: &Scrape) {
    let all = all();
    let kinds = scrape.kinds();
    for (name, kind) in &kinds {
        let metric = all.iter().find(|metric| metric.name() == *name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is in no list"));
        let expected = match metric.kind() {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        assert_eq!(*kind, expected, "{name}");
        let help = format!("# HELP {name} {}", metric.help());
        assert!(scrape.text.contains(&help), "{help}");
    }
    for metric in &all {
        let name = metric.name();
        let is_of_server = SERVERS.iter().any(|prefix| name.starts_with(prefix));
        assert_ne!(kinds.contains_key(name), is_of_server, "{name}");
    }
    let pairs = scrape.labels();
    for (label, value) in &pairs {
        assert!(!value.contains(SECRET), "{label}={value}");
    }
    let files = dashboard::expressions().into_iter().map(|(text, _)| text);
    let files = files.chain(alerts::expressions().into_iter().map(str::to_owned));
    for expression in files {
        for value in Query::parse(&expression).values {
            assert!(pairs.contains(&value), "{value:?}: {expression}");
        }
    }
}
