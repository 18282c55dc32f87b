//! What an operator does to lanes, and what the log says.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use keylane_console::{Action, ConsoleKey, StoredLetter};
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::served::{Served, Work};
use crate::shelf::Shelf;
use testkit_browser::until;

fn served() -> Served {
    Served::start(|console| console.allow(Action::ALL))
}

/// All log lines of this process.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn start() -> &'static Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::default();
            let writer = log.clone();
            tracing_subscriber::fmt()
                .with_env_filter("keylane_console=info")
                .with_ansi(false)
                .with_writer(writer)
                .init();
            log
        })
    }

    fn lines_with(&self, part: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .filter(|line| line.contains(part))
            .map(str::to_owned)
            .collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[test]
fn a_lane_is_paused_and_resumed() {
    let served = served();
    // Before its first message.
    assert_eq!(served.act("ann", "pause").status, 200);
    served.send("ann".into(), Work::Done);
    served.until_in("ann", "paused");
    until("it is counted", || served.orders.stats().accepted == 1);
    assert_eq!(served.orders.stats().done, 0);
    assert_eq!(served.act("ann", "resume").status, 200);
    until("it is done", || served.orders.stats().done == 1);
    let again = served.act("ann", "resume");
    assert_eq!(again.refusal(), (409, "nothing_to_decide".to_owned()));
}

#[test]
fn a_halted_head_is_skipped_and_one_in_flight_is_not() {
    let served = served();
    served.send("ann".into(), Work::Fails);
    served.send("ann".into(), Work::Holds);
    served.until_in("ann", "halted");
    let lane = served.find("ann");
    assert_eq!(lane["why"], "the handler failed: \"declined\"");
    assert_eq!(lane["attempt"], 1);
    assert_eq!(served.act("ann", "skip").status, 200);
    served.until_in("ann", "running");
    assert_eq!(
        served.act("ann", "skip").refusal(),
        (409, "in_flight".to_owned())
    );
}

#[test]
fn a_retry_need_not_wait() {
    let served = served();
    served.send("ann".into(), Work::Waits);
    served.until_in("ann", "backoff");
    let lane = served.find("ann");
    assert!(lane["due_ms"].as_u64() > Some(1_000_000), "{lane}");
    assert_eq!(served.act("ann", "retry_now").status, 200);
    served.until_in("ann", "halted");
    let again = served.act("ann", "retry_now");
    assert_eq!(again.refusal(), (409, "nothing_to_decide".to_owned()));
}

#[test]
fn a_purge_says_how_many_it_took() {
    let served = served();
    for _ in 0..5 {
        served.send("ann".into(), Work::Holds);
    }
    served.until_in("ann", "running");
    until("all are here", || served.find("ann")["depth"] == 5);
    assert_eq!(served.act("ann", "purge").json(), json!({ "purged": 4 }));
    assert_eq!(served.find("ann")["depth"], 1);
}

/// The one line of the log with all of these parts. It comes soon after the answer.
pub(crate) fn line_with(log: &Log, parts: &[&str]) -> String {
    let mut found = Vec::new();
    until(&format!("{parts:?} are in a line"), || {
        found = log.lines_with(parts[0]);
        found.retain(|line| parts.iter().all(|part| line.contains(part)));
        !found.is_empty()
    });
    assert_eq!(found.len(), 1, "{parts:?}");
    found.remove(0)
}

/// Two letters of this key.
pub(crate) fn letters_of(key: &str) -> Shelf {
    let shelf = Shelf::with(0);
    for id in ["1", "2"] {
        shelf.add(StoredLetter {
            id: id.to_owned(),
            key: Some(key.to_owned().into()),
            ..StoredLetter::default()
        });
    }
    shelf
}

#[test]
fn each_action_is_in_the_log_with_who_and_what() {
    let log = Log::start();
    let shelf = letters_of("ann");
    let served = Served::<String>::start(|console| {
        let console = console.letters("logged-letters", shelf.clone());
        console.allow(Action::ALL)
    });
    let hostile = "logged\nWARN forged \u{1b}[31m";
    served.send(hostile.into(), Work::Holds);
    served.send(hostile.into(), Work::Holds);
    served.until_in(hostile, "running");
    until("both are here", || served.find(hostile)["depth"] == 2);
    for action in Action::ALL {
        let (name, on, result) = match action {
            Action::Pause | Action::Resume => ("lane", "logged", "result=\"done\""),
            Action::Purge => ("lane", "logged", "result=\"done\" count=1"),
            Action::RetryNow | Action::Skip => ("lane", "logged", "result=\"in_flight\""),
            // Nothing reads a message of this dispatcher.
            Action::Replace => ("lane", "logged", "result=\"no_message\" why=\""),
            Action::RedriveLetters | Action::PurgeLetters => {
                ("dead letters", "logged-letters", "result=\"done\" count=1")
            }
            other => panic!("{other:?} is new: its line is to be tested"),
        };
        let text = serde_json::to_value(action).unwrap();
        let text = text.as_str().unwrap();
        if name == "lane" {
            served.act(hostile, text);
        } else {
            let id = if text.starts_with("redrive") {
                "1"
            } else {
                "2"
            };
            let body = json!({ "name": "logged-letters", "action": text, "ids": [id] });
            assert_eq!(served.post("letters/act", &body).status, 200);
            shelf.add(StoredLetter {
                id: "3".to_owned(),
                ..StoredLetter::default()
            });
        }
        let what = format!("action={action:?} ");
        let line = line_with(log, &[on, "an operator acts on", &what, result]);
        for part in [name, " WARN ", "session=0", "peer=\"127.0.0.1:"] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        // A key makes no line of its own, and no colour.
        assert!(
            name != "lane" || line.contains("key=\"logged\\nWARN forged"),
            "{line}"
        );
        assert!(!line.contains('\u{1b}'));
    }
    let read_only = Served::<String>::start(|console| console);
    assert_eq!(read_only.act("refused-one", "purge").status, 403);
    line_with(log, &["refused-one", "result=\"not_allowed\""]);
}

#[test]
fn a_job_over_letters_is_in_the_log_when_it_begins_stops_and_ends() {
    let log = Log::start();
    let shelf = letters_of("ann");
    let served = Served::<String>::start(|console| {
        let console = console.letters("job-letters", shelf.clone());
        console.allow(Action::ALL)
    });
    let named = |text: &str| json!({ "name": "job-letters", "action": text, "filter": "ann" });
    let stop = || served.post("letters/stop", &json!({ "name": "job-letters" }));
    assert_eq!(stop().status, 409);
    let stopped = "an operator stops a job";
    let line = |parts: &[&str]| {
        let line = line_with(log, &[&["letters=\"job-letters\""], parts].concat());
        for part in [" WARN ", "session=0", "peer=\"127.0.0.1:"] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        line
    };
    line(&[stopped, "result=\"no_job\""]);

    let gate = shelf.hold();
    assert_eq!(
        served.post("letters/act", &named("redrive_letters")).status,
        200
    );
    line(&["an operator acts on dead letters", "result=\"begun\""]);
    assert_eq!(stop().status, 200);
    line(&[stopped, "result=\"done\""]);
    let ended = "a job over dead letters has ended";
    line(&[
        ended,
        "action=\"redrive_letters\"",
        "result=\"stopped\" count=0",
    ]);
    gate.open();
    until("it is over", || {
        served.post("letters/act", &named("redrive_letters")).status == 200
    });
    line(&[
        ended,
        "filter=\"ann\"",
        "result=\"done\" count=2 looked_at=2",
    ]);
    shelf.add(StoredLetter {
        id: "9".to_owned(),
        key: Some("ann".into()),
        ..StoredLetter::default()
    });
    shelf.fail();
    assert_eq!(
        served.post("letters/act", &named("purge_letters")).status,
        200
    );
    let failed = line(&[
        ended,
        "action=\"purge_letters\"",
        "result=\"failed\" count=0",
    ]);
    assert!(
        failed.contains("why=\"the disk is <b>full</b>\""),
        "{failed}"
    );

    let read_only =
        Served::<String>::start(|console| console.letters("shut-letters", Shelf::with(1)));
    let refused = read_only.post("letters/stop", &json!({ "name": "shut-letters" }));
    assert_eq!(refused.status, 403);
    line_with(
        log,
        &[
            "letters=\"shut-letters\"",
            stopped,
            "result=\"not_allowed\"",
        ],
    );
}

/// A key that cannot be cloned while this is set.
static PANICS: AtomicBool = AtomicBool::new(false);

#[derive(PartialEq, Eq, Hash)]
struct Brittle(String);

impl Clone for Brittle {
    fn clone(&self) -> Self {
        assert!(!PANICS.load(Ordering::Relaxed), "planned");
        Self(self.0.clone())
    }
}

impl ConsoleKey for Brittle {
    fn to_text(&self) -> String {
        self.0.clone()
    }
    fn from_text(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
}

#[test]
fn an_action_whose_key_panics_is_in_the_log_with_its_key() {
    let log = Log::start();
    let served = Served::<Brittle>::start(|console| console.allow(Action::ALL));
    let id = served.find("brittle-one")["id"].clone();
    PANICS.store(true, Ordering::Relaxed);
    let body = json!({ "dispatcher": "orders", "id": id, "action": "pause" });
    assert_eq!(
        served.post("act", &body).refusal(),
        (500, "failed".to_owned())
    );
    PANICS.store(false, Ordering::Relaxed);
    line_with(
        log,
        &["key=\"brittle-one\"", "action=Pause", "result=\"failed\""],
    );
}
