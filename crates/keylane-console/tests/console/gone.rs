//! Actions whose clients do not wait for the answer, and those that are refused unread.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Extension, Router};
use keylane_console::{Action, ConsoleKey};
use serde_json::json;

use crate::actions::{Log, letters_of, line_with};
use crate::served::{Served, post};
use testkit_browser::{Browser, until};

/// Counts the requests that the server drops, because their clients have gone.
#[derive(Clone, Default)]
struct Dropped(Arc<AtomicUsize>);

impl Dropped {
    fn around(&self, app: Router) -> Router {
        let dropped = self.clone();
        app.layer(from_fn(move |request: Request, next: Next| {
            dropped.clone().answer(request, next)
        }))
    }

    async fn answer(self, request: Request, next: Next) -> Response {
        struct Unanswered(Option<Arc<AtomicUsize>>);
        impl Drop for Unanswered {
            fn drop(&mut self) {
                if let Some(dropped) = &self.0 {
                    dropped.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        let mut unanswered = Unanswered(Some(self.0));
        let response = next.run(request).await;
        unanswered.0 = None;
        response
    }

    fn until_one(&self) {
        until("the request is dropped", || {
            self.0.load(Ordering::SeqCst) == 1
        });
    }
}

/// Held while a key must not be cloned, and how many wait for that.
static HELD: RwLock<()> = RwLock::new(());
static WAITING: AtomicUsize = AtomicUsize::new(0);

#[derive(PartialEq, Eq, Hash)]
struct Slow(String);

impl Clone for Slow {
    fn clone(&self) -> Self {
        WAITING.fetch_add(1, Ordering::SeqCst);
        let _free = HELD.read().unwrap();
        WAITING.fetch_sub(1, Ordering::SeqCst);
        Self(self.0.clone())
    }
}

impl ConsoleKey for Slow {
    fn to_text(&self) -> String {
        self.0.clone()
    }
    fn from_text(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
}

#[test]
fn an_action_on_a_lane_whose_client_has_gone_is_done_and_in_the_log() {
    let log = Log::start();
    let dropped = Dropped::default();
    let served = Served::<Slow>::start_with(
        0,
        |console| console.allow(Action::ALL),
        |app| dropped.around(app),
    );
    let id = served.find("gone-lane")["id"].clone();
    let body = json!({ "dispatcher": "orders", "id": id, "action": "pause" });
    let held = HELD.write().unwrap();
    let client = served.ours(post("act")).json(&body).open(served.address);
    until("the action has begun", || {
        WAITING.load(Ordering::SeqCst) == 1
    });
    drop(client);
    dropped.until_one();
    drop(held);
    line_with(
        log,
        &["key=\"gone-lane\"", "action=Pause", "result=\"done\""],
    );
    assert_eq!(served.orders.stats().paused, 1);
}

#[test]
fn an_action_on_letters_whose_client_has_gone_is_done_whole_and_in_the_log() {
    let log = Log::start();
    let shelf = letters_of("ann");
    let dropped = Dropped::default();
    let served = Served::<String>::start_with(
        0,
        |console| {
            let console = console.letters("gone-letters", shelf.clone());
            console.allow(Action::ALL)
        },
        |app| dropped.around(app),
    );
    let gate = shelf.hold();
    let body = json!({ "name": "gone-letters", "action": "redrive_letters", "ids": ["1", "2"] });
    let request = served.ours(post("letters/act")).json(&body);
    let client = request.open(served.address);
    until("the action has begun", || gate.waiting() == 1);
    drop(client);
    dropped.until_one();
    gate.open();
    let parts = ["letters=\"gone-letters\"", "result=\"done\" count=2"];
    line_with(log, &parts);
    assert_eq!(shelf.redriven(), [1, 2]);
}

#[test]
fn a_store_that_panics_is_an_error_and_a_line() {
    let log = Log::start();
    let shelf = letters_of("ann");
    let served = Served::<String>::start(|console| {
        let console = console.letters("torn-letters", shelf);
        console.allow(Action::ALL)
    });
    let body = json!({ "name": "torn-letters", "action": "purge_letters", "ids": ["no number"] });
    let answer = served.post("letters/act", &body);
    assert_eq!(answer.refusal(), (500, "failed".to_owned()));
    line_with(log, &["letters=\"torn-letters\"", "result=\"failed\""]);
}

#[test]
fn a_refused_action_is_in_the_log_as_far_as_it_is_known() {
    let log = Log::start();
    // Other tests have such lines, too.
    let peer: SocketAddr = "127.9.9.9:7".parse().unwrap();
    let served = Served::<String>::start_with(
        0,
        |console| console.allow(Action::ALL),
        |app| app.layer(Extension(ConnectInfo(peer))),
    );
    let of_lane = json!({ "dispatcher": "none\nforged", "id": "1", "action": "purge" });
    let of_letters = json!({ "name": "none\nforged", "action": "purge_letters", "filter": "" });
    for (path, body, action, result) in [
        (
            "act",
            of_lane,
            "action=Purge dispatcher=\"none\\nforged\"",
            "result=\"no_such_dispatcher\"",
        ),
        (
            "letters/act",
            of_letters,
            "action=PurgeLetters letters=\"none\\nforged\"",
            "result=\"no_such_letters\"",
        ),
    ] {
        assert_eq!(served.post(path, &body).status, 404);
        line_with(log, &[action, result]);
    }

    // Each client that reaches the port can send these: one line of each reason.
    let unread = |parts: &[&str]| {
        let peer = ["an action is refused unread", "peer=\"127.9.9.9:7\""];
        line_with(log, &[&peer[..], parts].concat())
    };
    let unknown = json!({ "action": "drop\nall", "gone": 1 });
    let known = json!({ "dispatcher": "orders", "id": "1", "action": "drop_all" });
    assert_eq!(served.post("act", &known).status, 400);
    assert_eq!(served.post("act", &unknown).status, 400);
    let line = unread(&["result=\"bad_request\""]);
    assert!(
        line.contains("unknown variant `drop_all`") && line.contains("path=\"/act\""),
        "{line}"
    );
    for path in ["letters/act", "act"] {
        let foreign = post(path).header("origin", "http://evil.example");
        assert_eq!(foreign.json(&known).send(served.address).status, 403);
    }
    unread(&["result=\"foreign_origin\"", "path=\"/letters/act\""]);
    let plain = post("letters/stop").header("origin", &format!("http://{}", served.address));
    assert_eq!(plain.json(&known).send(served.address).status, 403);
    unread(&["result=\"no_header\"", "path=\"/letters/stop\""]);
}

#[test]
fn the_page_waits_for_a_store_and_says_that_an_action_without_an_answer_may_be_done() {
    let shelf = letters_of("ann");
    let served = Served::<String>::start(|console| {
        let console = console.letters("late", shelf.clone());
        console.allow(Action::ALL)
    });
    let browser = Browser::start();
    browser.open(&format!("{}#letter/late/1", served.url()));
    browser.until("document.getElementById('redrive-one').checkVisibility()");
    let gate = shelf.hold();
    browser.run(
        "window.times = []; \
         AbortSignal.timeout = (ms) => { \
           const late = new AbortController(); \
           times.push([ms, late]); \
           return late.signal; \
         }",
    );
    browser.click("#redrive-one");
    browser.click("#ask-yes");
    until("the store has it", || gate.waiting() == 1);
    assert_eq!(browser.run("return times.at(-1)[0]"), 40_000);
    browser.run("times.at(-1)[1].abort(new DOMException('signal timed out', 'TimeoutError'))");
    browser.until(
        "document.getElementById('letter-acted').textContent == \
         'Redrive: no answer. It may be done: look again'",
    );
    // It goes on.
    gate.open();
    until("it is done", || shelf.redriven() == [1]);
}
