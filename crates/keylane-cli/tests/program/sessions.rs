//! The sessions that the program opens.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request as Asked;
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use keylane_console::{Builder, Console};
use keylane_inbox::Inbox;
use testkit_browser::{Request, until};

use crate::served::{Served, answer, inbox_with_letters, program, runtime};
use crate::terminal::Terminal;

const TOKEN: &str = "canary-4711-canary-4711-canary-4711";

/// The cookies of the requests that have ended a session.
type Ended = Arc<Mutex<Vec<String>>>;

fn served(set: impl FnOnce(Builder) -> Builder) -> (Served, Ended) {
    let ended = Ended::default();
    let seen = Arc::clone(&ended);
    let look = from_fn(move |request: Asked, next: Next| {
        if request.method() == Method::DELETE && request.uri().path() == "/ops/console/session" {
            let cookie = request.headers().get("cookie").unwrap();
            let cookie = cookie.to_str().unwrap().to_owned();
            seen.lock().unwrap().push(cookie);
        }
        next.run(request)
    });
    let console = set(Console::builder()).build().unwrap();
    let app = Router::new().nest("/ops/console", console.router());
    (Served::with(app.layer(look)), ended)
}

#[test]
fn each_run_ends_its_session_also_after_an_error() {
    let directory = inbox_with_letters();
    let inbox = runtime().block_on(Inbox::open(directory.path())).unwrap();
    let letters = inbox.letters();
    let (served, ended) = served(|console| console.letters("orders", letters).token(TOKEN));
    let run = |args: &[&str]| {
        let mut program = program();
        program.env("KEYLANE_CONSOLE_TOKEN", TOKEN);
        answer(
            program
                .args(["letters", "--console", &served.url()])
                .args(args),
        )
        .0
    };
    assert_eq!(run(&["list"]), 0);
    assert_eq!(run(&["show", "999"]), 1);
    assert_eq!(run(&["list", "--letters", "none"]), 1);
    let cookies = ended.lock().unwrap().clone();
    assert_eq!(cookies.len(), 3);
    for cookie in &cookies {
        let about = Request::new("GET", "/ops/console/about").header("cookie", cookie);
        assert_eq!(about.send(served.address).status, 401, "{cookie}");
    }
}

#[test]
fn a_terminal_ends_its_session() {
    let (served, ended) = served(|console| console.token(TOKEN));
    let program = env!("CARGO_BIN_EXE_keylane");
    let with_token = format!("env KEYLANE_CONSOLE_TOKEN={TOKEN} {program}");
    let mut terminal = Terminal::start(&format!("{with_token} top --console {}", served.url()));
    terminal.until(&["live, up for"]);
    terminal.press("q");
    assert_eq!(terminal.ended().0, Some(0));
    until("the session has ended", || ended.lock().unwrap().len() == 1);
}

#[test]
fn without_a_session_nothing_is_ended() {
    let directory = inbox_with_letters();
    let inbox = runtime().block_on(Inbox::open(directory.path())).unwrap();
    let (served, ended) = served(|console| console.letters("orders", inbox.letters()));
    assert_eq!(served.ok(&["list", "--limit", "1"]).lines().count(), 1);
    assert_eq!(ended.lock().unwrap().len(), 0);
}
