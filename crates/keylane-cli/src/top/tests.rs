//! The screen over a real console of a real dispatcher.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use keylane::error::Failure;
use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_console::{Console as Served, SourcePart};
use keylane_inbox::Inbox;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::state::{Page, State, Update, Want};
use super::{follow, keys, view};
use crate::console::{Access, Console};

#[path = "../../tests/program/terminal.rs"]
#[allow(dead_code, reason = "the test of the program needs more of it")]
mod terminal;

type Orders = Dispatcher<String, (String, &'static str), (), &'static str>;

/// A service, and a console of it.
struct Service {
    served: Served,
    server: JoinHandle<()>,
    address: SocketAddr,
    orders: Orders,
}

impl Service {
    /// Ten orders: five are done, three of a user are held, one has failed, one waits for an hour.
    async fn start(port: u16) -> Self {
        let hour = Retry::fixed(Duration::from_secs(3_600)).max_attempts(2);
        let orders: Orders = Dispatcher::builder(|(user, _): &(String, &str)| user.clone())
            .retry(hour.retry_if(|why| matches!(why, Failure::Error("later"))))
            .on_exhausted(OnExhausted::Halt)
            .capacity(1_010)
            .concurrency(4)
            .spawn(async |(_, work): (String, &'static str)| match work {
                "done" => Ok(()),
                "held" => pending().await,
                why => Err(why),
            })
            .unwrap();
        for (user, work) in [
            ("ann", "held"),
            ("ann", "held"),
            ("ann", "held"),
            ("bob\u{1b}[2J", "the bank has declined it"),
            ("zoë", "later"),
        ] {
            orders.send((user.to_owned(), work)).await.unwrap();
        }
        for user in 0..5 {
            orders.send((format!("user-{user}"), "done")).await.unwrap();
        }
        let served = Served::builder().dispatcher("orders", &orders).build();
        let served = served.unwrap();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let console = served.clone();
        let server = tokio::spawn(async move { console.serve(listener).await.unwrap() });
        Self {
            served,
            server,
            address,
            orders,
        }
    }

    fn console(&self) -> (Console, State) {
        let url = format!("http://{}", self.address);
        let console = Console::open(url.parse().unwrap(), &Access::default()).unwrap();
        let state = State::new(console.url());
        (console, state)
    }

    async fn end(self) {
        self.served.close();
        self.server.await.unwrap();
    }
}

/// Follows the feeds of the page until the screen has all of these texts, and returns it.
async fn until(console: &Console, state: &mut State, texts: &[&str]) -> String {
    let (sender, mut updates) = mpsc::channel(4);
    let dispatcher = state.looks_at();
    let overview = follow::follow_overview(console, &sender);
    let lanes = async {
        match &dispatcher {
            Some(name) => follow::follow_lanes(console, name, &sender).await,
            None => pending().await,
        }
    };
    let look = async {
        loop {
            let update = updates.recv().await.unwrap();
            if let Want::Find { dispatcher, key } = state.update(update) {
                state.update(follow::find(console, dispatcher, key).await);
            }
            let screen = picture(state, 80, 24);
            if texts.iter().all(|text| screen.contains(text)) {
                return screen;
            }
        }
    };
    let looked = timeout(Duration::from_secs(60), async {
        tokio::select! {
            never = overview => match never {},
            never = lanes => match never {},
            screen = look => screen,
        }
    });
    let looked = looked.await;
    looked.unwrap_or_else(|_| panic!("{texts:?} are not in\n{}", picture(state, 80, 24)))
}

fn picture(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width).max(1));
    let rows = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    let rows: Vec<_> = rows.map(|row| row.trim_end().to_owned()).collect();
    rows.join("\n")
}

fn press(state: &mut State, keys: &str) -> Want {
    let mut want = Want::Nothing;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        want = keys::press(state, KeyEvent::new(code, KeyModifiers::NONE));
    }
    want
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_overview_has_what_the_dispatcher_counts() {
    let service = Service::start(0).await;
    let (console, mut state) = service.console();
    let screen = until(
        &console,
        &mut state,
        &["10 in all", "5 in all", "1 backing off", "1 halted"],
    )
    .await;
    for part in [
        "live, up for",
        " orders",
        "/s, 2 in all",
        "5 in 3 lanes",
        " left, 0 lanes full",
        "1 of 4 in flight",
        "0 paused",
    ] {
        assert!(screen.contains(part), "{part}:\n{screen}");
    }
    // Times are measured while there is a viewer.
    let orders = service.orders.clone();
    let sends = tokio::spawn(async move {
        while orders.send(("user-9".to_owned(), "done")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    until(
        &console,
        &mut state,
        &["wait      50 % ", "attempt   50 % "],
    )
    .await;
    assert!(state.rates(0)[0] > 0);
    sends.abort();
    service.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sources_have_their_figures() {
    let directory = tempfile::tempdir().unwrap();
    let inbox = Inbox::open(directory.path()).await.unwrap();
    let payments = Dispatcher::key_by_opt(|payment: &RawMessage| payment.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn(async |payment: RawMessage| match &*payment.payload {
            b"held" => pending().await,
            _ => Ok::<(), String>(()),
        })
        .unwrap();
    let intake = payments.consume(inbox.source()).unwrap();
    inbox.accept("ann", "1").await.unwrap();
    inbox.accept("bob", "held").await.unwrap();
    let whole = || SourcePart {
        name: "the whole inbox".to_owned(),
        front: Some("sequence 2".to_owned()),
        ..SourcePart::default()
    };
    let console = Served::builder()
        .dispatcher("payments", &payments)
        .intake("inbox", &intake)
        .parts("inbox", move || vec![whole()]);
    let served = console.build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = served.clone();
    tokio::spawn(async move { serving.serve(listener).await });
    let console = Console::open(url.parse().unwrap(), &Access::default()).unwrap();
    let mut state = State::new(console.url());
    press(&mut state, "3");
    let figures = &[
        " inbox  running",
        "received     2",
        "acked        1",
        "the whole inbox",
        "held back by bob of payments",
    ];
    until(&console, &mut state, figures).await;
    served.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lanes_have_their_states_and_their_reasons() {
    let service = Service::start(0).await;
    let (console, mut state) = service.console();
    until(&console, &mut state, &["orders"]).await;
    press(&mut state, "2s");
    let shown = &["halted", "backoff", "running", "3 lanes, by depth"];
    let screen = until(&console, &mut state, shown).await;
    let lines: Vec<_> = screen.lines().collect();
    // The deepest lane is the first, and has the cursor.
    assert!(
        lines[3].starts_with("ann") && lines[3].contains(" 3 "),
        "{screen}"
    );
    assert!(
        screen.contains(" running until the end of its handler, attempt 1, for "),
        "{screen}"
    );
    assert!(screen.contains("the handler failed: "), "{screen}");
    // A key moves no cursor of the terminal.
    assert!(screen.contains(r"bob\u{1b}[2J"), "{screen}");
    let bob = state.rows().iter().position(|lane| lane.state == "halted");
    press(&mut state, &"j".repeat(bob.unwrap()));
    let screen = picture(&state, 80, 24);
    assert!(screen.contains("the bank has declined it"), "{screen}");
    let chosen = state.cursor.clone();
    press(&mut state, "s");
    assert_eq!(state.cursor, chosen, "the cursor stays at its lane");
    service.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_found_that_is_not_in_the_list() {
    let service = Service::start(0).await;
    let (console, mut state) = service.console();
    until(&console, &mut state, &["orders"]).await;
    let want = press(&mut state, "/nobody? q\n");
    let key = "nobody? q".to_owned();
    let dispatcher = "orders".to_owned();
    assert_eq!(want, Want::Find { dispatcher, key });
    let screen = until(
        &console,
        &mut state,
        &["nobody? q", "empty until a message of this key", "ann"],
    )
    .await;
    assert_eq!(state.page, Page::Lanes, "{screen}");
    press(&mut state, "\x1b");
    assert!(!picture(&state, 80, 24).contains("nobody"));
    service.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_goes_and_comes_again_is_said() {
    let service = Service::start(0).await;
    let (console, mut state) = service.console();
    until(&console, &mut state, &["live, up for", "1 halted"]).await;
    let port = service.address.port();
    service.end().await;
    let lost = until(&console, &mut state, &["lost, trying again: "]).await;
    assert!(
        lost.contains("1 halted"),
        "what was seen last stays:\n{lost}"
    );
    let again = Service::start(port).await;
    until(
        &console,
        &mut state,
        &["live, up for", "it has started again"],
    )
    .await;
    again.end().await;
}

#[test]
fn the_screen_fits_into_any_terminal() {
    let mut state = State::new("http://127.0.0.1:3000".to_owned());
    assert!(picture(&state, 80, 24).contains("connecting"));
    state.update(Update::Lost("it is \x1b[31mgone".to_owned()));
    for key in ["1", "2", "3", "?", "/", "a"] {
        press(&mut state, key);
        for (width, height) in [(1, 1), (2, 3), (20, 5), (80, 24), (300, 100)] {
            picture(&state, width, height);
        }
    }
    press(&mut state, "\x1b?");
    let help = picture(&state, 80, 24);
    assert!(
        help.contains("those that fail, are halted or are paused; not all lanes."),
        "{help}"
    );
    assert!(help.contains(r"it is \u{1b}[31mgone"), "{help}");
}

#[test]
fn keys_quit_unless_a_key_is_typed() {
    let mut state = State::new("http://127.0.0.1:3000".to_owned());
    assert_eq!(press(&mut state, "q"), Want::Quit);
    assert_eq!(press(&mut state, "/q"), Want::Nothing);
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(keys::press(&mut state, control), Want::Quit);
    assert_eq!(press(&mut state, "\x1bq"), Want::Quit);
    assert_eq!(press(&mut state, "?q"), Want::Quit);
}

/// Set for the next test when it runs in a terminal of its own.
const IN_TERMINAL: &str = "KEYLANE_TOP_PANICS";

#[test]
fn a_panic_gives_the_terminal_back_and_is_read() {
    if std::env::var_os(IN_TERMINAL).is_some() {
        let mut screen = super::screen::Screen::open().unwrap();
        let state = State::new("http://127.0.0.1:3000".to_owned());
        screen.draw(&state).unwrap();
        panic!("as planned");
    }
    let this = std::env::current_exe().unwrap();
    let name = "top::tests::a_panic_gives_the_terminal_back_and_is_read";
    let test = format!("{} --exact {name} --nocapture", this.display());
    let terminal = terminal::Terminal::start(&format!("env {IN_TERMINAL}=1 {test}"));
    let (code, behind) = terminal.ended();
    assert_ne!(code, Some(0));
    assert!(behind.contains("as planned"), "{behind}");
}
