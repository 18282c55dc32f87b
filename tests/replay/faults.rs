//! Designs that do it wrong. Each must be caught, or the replay's "equal" would mean nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::designs::{Design, DesignError};
use crate::event::{Change, Entry, Event, ObjectId, RepoPath};
use crate::git::Repository;
use crate::handler::Handler;
use crate::replay::Replay;
use crate::report::Report;
use crate::state::Table;
use crate::support::{Edit, Repo};

#[tokio::test]
async fn a_design_that_lets_one_event_overtake_another_is_caught() {
    let repo = one_path(&["a", "b", "c", "d"]);
    let report = run(&repo, |handler| InOrderOf::new(handler, &[1, 3, 2, 4])).await;
    assert!(!report.is_good());
    assert!(!report.comparison.is_equal(), "{report}");
    // 3 finds what 1 left, 2 comes after 3, 4 finds what 1 left.
    assert_eq!(report.summary.breaks, 3, "{report}");
    let shown = report.to_string();
    assert!(
        shown.contains("event 2 of path: event 3 came first"),
        "{shown}"
    );
    assert!(shown.contains("event 3 of path: found 100644 "), "{shown}");
}

#[tokio::test]
async fn order_is_seen_even_where_the_data_looks_the_same() {
    // a, b, a, b: with 2 and 4 exchanged every event still finds what it expects.
    let repo = one_path(&["a", "b", "a", "b"]);
    let report = run(&repo, |handler| InOrderOf::new(handler, &[1, 4, 3, 2])).await;
    assert!(!report.is_good());
    assert_eq!(report.summary.breaks, 2, "{report}");
}

#[tokio::test]
async fn the_same_events_in_order_are_good() {
    let repo = one_path(&["a", "b", "a", "b"]);
    let report = run(&repo, |handler| InOrderOf::new(handler, &[1, 2, 3, 4])).await;
    assert!(report.is_good(), "{report}");
}

#[tokio::test]
async fn a_design_that_runs_two_events_of_a_path_at_once_is_caught() {
    let repo = one_path(&["a", "b", "a", "b"]);
    let report = run(&repo, AllAtOnce::new).await;
    assert!(!report.is_good());
    assert_eq!(report.summary.breaks, 3, "{report}");
    assert_eq!(report.most_in_flight, 4);
    assert_eq!(report.summary.busy_paths, 1);
    let (depth, path) = report.summary.deepest_lane.as_ref().unwrap();
    assert_eq!((*depth, path.to_string()), (4, "path".to_owned()));
    let shown = report.to_string();
    assert!(
        shown.contains("another event of this path was still running"),
        "{shown}"
    );
}

#[tokio::test]
async fn running_different_paths_at_once_is_good() {
    let repo = Repo::new(|import| {
        let files = ["a", "b", "c"].map(|path| Edit::file(path, "1"));
        import.commit("main", &files);
    });
    let report = run(&repo, AllAtOnce::new).await;
    assert!(report.is_good(), "{report}");
    assert_eq!(report.most_in_flight, 3);
    assert_eq!(report.summary.busy_paths, 3);
    assert_eq!(report.summary.deepest_lane.as_ref().unwrap().0, 1);
}

#[tokio::test]
async fn what_is_over_is_not_counted_as_at_the_same_time() {
    let repo = Repo::new(|import| {
        let files = ["a", "b", "c"].map(|path| Edit::file(path, "1"));
        import
            .commit("main", &files)
            .commit("main", &[Edit::file("a", "2")]);
    });
    let report = run(&repo, AtOnce).await;
    assert!(report.is_good(), "{report}");
    assert_eq!(report.most_in_flight, 1);
    assert_eq!(report.summary.busy_paths, 1);
    assert_eq!(report.summary.deepest_lane.as_ref().unwrap().0, 1);
}

#[tokio::test]
async fn a_design_that_loses_an_event_in_the_middle_is_caught() {
    let repo = one_path(&["a", "b", "c"]);
    let report = run(&repo, |handler| InOrderOf::new(handler, &[1, 3])).await;
    assert!(!report.is_good());
    assert_eq!(report.summary.breaks, 1, "{report}");
}

#[tokio::test]
async fn a_design_that_loses_the_last_event_is_caught() {
    let repo = one_path(&["a", "b", "c"]);
    let report = run(&repo, |handler| InOrderOf::new(handler, &[1, 2])).await;
    assert!(!report.is_good());
    assert_eq!(report.summary.breaks, 0, "{report}");
    assert_eq!(report.comparison.differences, 1, "{report}");
}

#[tokio::test]
async fn a_design_that_loses_events_without_a_trace_is_caught() {
    // Without 2 and 3 the path ends as it should.
    let repo = one_path(&["a", "b", "a"]);
    let report = run(&repo, |handler| InOrderOf::new(handler, &[1])).await;
    assert!(
        report.comparison.is_equal() && report.summary.breaks == 0,
        "{report}"
    );
    assert!(!report.is_good());
    assert!(report.to_string().contains("ONLY 1"), "{report}");
}

#[tokio::test]
async fn a_design_that_handles_an_event_twice_is_caught() {
    let repo = one_path(&["a", "b", "a"]);
    let report = run(&repo, |handler| InOrderOf::new(handler, &[1, 2, 3, 3])).await;
    assert!(!report.is_good());
    assert_eq!(report.summary.breaks, 1, "{report}");
}

#[tokio::test]
async fn a_design_that_stops_is_an_error() {
    let repo = one_path(&["a", "b"]);
    let repository = Repository::open(repo.path()).await.unwrap();
    let handler = Arc::new(Handler::new(Duration::ZERO));
    let replay = Replay {
        repository: &repository,
        name: "planted".to_owned(),
        handler,
        hottest: 5,
    };
    let error = replay.run(Stopped).await.unwrap_err();
    assert_eq!(error.to_string(), "the design stopped");
}

#[tokio::test]
async fn a_design_that_stands_still_is_an_error() {
    let repo = one_path(&["a", "b", "c"]);
    let repository = Repository::open(repo.path()).await.unwrap();
    let handler = Arc::new(Handler::new(Duration::ZERO));
    let design = Still(InOrderOf::new(handler.clone(), &[1, 2]));
    let replay = Replay {
        repository: &repository,
        name: "planted".to_owned(),
        handler,
        hottest: 5,
    };
    let error = replay.run(design).await.unwrap_err();
    let reason = "the design stands still: 2 of 3 events are handled";
    assert!(error.to_string().starts_with(reason), "{error}");
}

#[test]
fn the_comparison_sees_every_kind_of_difference() {
    let table = Table::default();
    let old = entry(0o100644, '1');
    for (number, path) in ["same", "blob", "mode", "extra"].into_iter().enumerate() {
        let change = Change {
            path: RepoPath::new(path.as_bytes()),
            before: None,
            after: Some(old),
        };
        let event = Event {
            number: number as u64 + 1,
            change,
            sent: Instant::now(),
        };
        table.sent(&event);
        let turn = table.begin(&event);
        table.end(event, turn);
    }
    let standing = [("same", old), ("blob", old), ("mode", old), ("extra", old)];
    assert!(table.compare(tree(&standing)).is_equal());

    let other = [
        ("same", old),
        ("blob", entry(0o100644, '2')),
        ("mode", old),
        ("extra", old),
    ];
    assert_eq!(table.compare(tree(&other)).differences, 1);
    let other = [
        ("same", old),
        ("blob", old),
        ("mode", entry(0o100755, '1')),
        ("extra", old),
    ];
    assert_eq!(table.compare(tree(&other)).differences, 1);
    assert_eq!(table.compare(tree(&standing[..3])).differences, 1);
    let missing = [&standing[..], &[("missing", old)]].concat();
    assert_eq!(table.compare(tree(&missing)).differences, 1);
    assert_eq!(table.compare(tree(&[])).differences, 4);
}

/// Handles the events of the given numbers, in this order, and nothing else.
struct InOrderOf {
    handler: Arc<Handler>,
    events: HashMap<u64, Event>,
    order: Vec<u64>,
}

impl InOrderOf {
    fn new(handler: Arc<Handler>, order: &[u64]) -> Self {
        Self {
            handler,
            events: HashMap::new(),
            order: order.to_vec(),
        }
    }
}

impl Design for InOrderOf {
    async fn send(&mut self, event: Event) -> Result<(), DesignError> {
        self.events.insert(event.number, event);
        Ok(())
    }

    async fn finish(self) -> Result<(), DesignError> {
        tokio::time::pause();
        for number in self.order {
            let Event {
                number,
                change,
                sent,
            } = &self.events[&number];
            let event = Event {
                number: *number,
                change: change.clone(),
                sent: *sent,
            };
            self.handler.handle(event).await;
        }
        Ok(())
    }
}

/// Handles each event while it is sent.
struct AtOnce(Arc<Handler>);

impl Design for AtOnce {
    async fn send(&mut self, event: Event) -> Result<(), DesignError> {
        self.0.handle(event).await;
        Ok(())
    }

    async fn finish(self) -> Result<(), DesignError> {
        Ok(())
    }
}

/// No queue at all: a task for every event.
struct AllAtOnce {
    handler: Arc<Handler>,
    tasks: JoinSet<()>,
    events: Vec<Event>,
}

impl AllAtOnce {
    fn new(handler: Arc<Handler>) -> Self {
        Self {
            handler,
            tasks: JoinSet::new(),
            events: Vec::new(),
        }
    }
}

impl Design for AllAtOnce {
    async fn send(&mut self, event: Event) -> Result<(), DesignError> {
        self.events.push(event);
        Ok(())
    }

    async fn finish(mut self) -> Result<(), DesignError> {
        tokio::time::pause();
        // Started together, so that none is done before the last has begun.
        for event in self.events {
            let handler = self.handler.clone();
            self.tasks.spawn(async move { handler.handle(event).await });
        }
        self.tasks.join_all().await;
        Ok(())
    }
}

/// Takes one event and breaks.
struct Stopped;

impl Design for Stopped {
    async fn send(&mut self, _: Event) -> Result<(), DesignError> {
        Err(DesignError::WorkerGone)
    }

    async fn finish(self) -> Result<(), DesignError> {
        Ok(())
    }
}

/// Waits for ever for what it has not handled.
struct Still(InOrderOf);

impl Design for Still {
    async fn send(&mut self, event: Event) -> Result<(), DesignError> {
        self.0.send(event).await
    }

    async fn finish(self) -> Result<(), DesignError> {
        self.0.finish().await?;
        std::future::pending().await
    }
}

/// A history of one path, `path`, with a commit for each content.
fn one_path(contents: &[&str]) -> Repo {
    Repo::new(|import| {
        for content in contents {
            import.commit("main", &[Edit::file("path", content)]);
        }
    })
}

/// Runs a planted design, whose handlers take a millisecond. Each pauses the time once all is sent.
async fn run<D: Design>(repo: &Repo, start: impl FnOnce(Arc<Handler>) -> D) -> Report {
    let repository = Repository::open(repo.path()).await.unwrap();
    let handler = Arc::new(Handler::new(Duration::from_millis(1)));
    let design = start(handler.clone());
    let replay = Replay {
        repository: &repository,
        name: "planted".to_owned(),
        handler,
        hottest: 5,
    };
    replay.run(design).await.unwrap()
}

fn entry(mode: u32, digit: char) -> Entry {
    let hex = String::from(digit).repeat(40);
    Entry {
        mode,
        object: ObjectId::from_hex(hex.as_bytes()).unwrap(),
    }
}

fn tree(entries: &[(&str, Entry)]) -> HashMap<RepoPath, Entry> {
    entries
        .iter()
        .map(|(path, entry)| (RepoPath::new(path.as_bytes()), *entry))
        .collect()
}
