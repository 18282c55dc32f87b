//! What an operator does to lanes, and what the log says.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use keylane_console::Action;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::served::{Served, Work};
use testkit_browser::until;

fn served() -> Served {
    Served::start(|console| console.allow(Action::ALL))
}

/// All log lines of this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start() -> &'static Self {
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

#[test]
fn each_action_is_in_the_log_with_who_and_what() {
    let log = Log::start();
    let served = served();
    let hostile = "logged\nWARN forged \u{1b}[31m";
    served.send(hostile.into(), Work::Holds);
    served.until_in(hostile, "running");
    assert_eq!(served.act(hostile, "pause").status, 200);
    assert_eq!(served.act(hostile, "skip").status, 409);
    let lines = log.lines_with("logged");
    assert_eq!(lines.len(), 2, "{lines:?}");
    for part in [
        "Pause",
        "dispatcher=orders",
        "session=0",
        "peer=\"127.0.0.1:",
        "\"done\"",
    ] {
        assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
    }
    assert!(
        lines[1].contains("Skip") && lines[1].contains("in_flight"),
        "{}",
        lines[1]
    );
    // A key makes no line of its own, and no colour.
    assert!(lines[0].contains("logged\\nWARN forged"), "{}", lines[0]);
    assert!(!lines[0].contains('\u{1b}'));
    let read_only = Served::<String>::start(|console| console);
    assert_eq!(read_only.act("refused-one", "purge").status, 403);
    assert!(!log.lines_with("not_allowed").is_empty());
}
