//! `keylane top` in a terminal.

use keylane::{Dispatcher, OnExhausted};
use testkit_servers::Authority;

use crate::served::{Served, answer, program, runtime};
use crate::terminal::Terminal;
use crate::tls::{Proxy, file};

/// A service with a lane that is halted.
fn served() -> Served {
    let _entered = runtime().enter();
    let orders = Dispatcher::builder(|user: &String| user.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(async |_: String| Err::<(), _>("declined"))
        .unwrap();
    let sent = runtime().block_on(orders.send("user-7".to_owned()));
    assert!(sent.is_ok());
    Served::start(|console| console.dispatcher("orders", &orders))
}

fn top(served: &Served) -> Terminal {
    top_at(&served.url())
}

fn top_at(place: &str) -> Terminal {
    let program = env!("CARGO_BIN_EXE_keylane");
    Terminal::start(&format!("{program} top --console {place}"))
}

#[test]
fn a_service_behind_a_proxy_with_tls_is_followed() {
    let served = served();
    let authority = Authority::new("ops");
    let proxy = Proxy::start(served.address, &authority.server(), None);
    let ca = file(&authority.pem());
    let place = format!("{} --ca {}", proxy.url(), ca.path().display());
    let mut terminal = top_at(&place);
    terminal.until(&["keylane top https://127", "live, up for", "1 halted"]);
    terminal.press("2");
    terminal.until(&["user-7", "halted", "declined"]);
    terminal.press("q");
    assert_eq!(terminal.ended().0, Some(0));
}

#[test]
fn a_terminal_shows_the_service_and_is_as_before_at_the_end() {
    let served = served();
    let mut terminal = top(&served);
    let screen = terminal.until(&["keylane top", "live, up for", "orders", "1 halted"]);
    assert_eq!(screen.lines().count(), 24, "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80));
    terminal.press("2");
    terminal.until(&["user-7", "halted", "declined", "until an operator"]);
    terminal.press("/nobody\r");
    terminal.until(&["nobody", "empty until a message of this key"]);
    terminal.press("?");
    terminal.until(&["searches a key"]);
    terminal.press("x");
    // A key that comes with a change of the size is read with the next key.
    terminal.until(&["user-7", "/ search a key"]);
    terminal.resize(30, 120);
    terminal.until_so("it has 30 lines", |screen| {
        let last = screen.lines().nth(29);
        screen.contains("user-7") && last.is_some_and(|line| line.contains("q quit"))
    });
    terminal.press("q");
    assert_eq!(terminal.ended().0, Some(0));
}

#[test]
fn ctrl_c_and_a_signal_end_it_like_q() {
    let served = served();
    let mut terminal = top(&served);
    terminal.until(&["1 halted"]);
    terminal.press("\x03");
    assert_eq!(terminal.ended().0, Some(0));
    let terminal = top(&served);
    terminal.until(&["1 halted"]);
    terminal.terminate();
    assert_eq!(terminal.ended().0, Some(0));
}

#[test]
fn without_a_terminal_or_a_console_it_takes_no_screen() {
    let served = served();
    let (code, out, err) = answer(program().args(["top", "--console", &served.url()]));
    assert_eq!((code, &*out), (1, ""));
    assert!(err.contains("this is no terminal"), "{err}");
    let root = format!("http://{}/", served.address);
    let (code, out, err) = answer(program().args(["top", "--console", &root]));
    assert_eq!((code, &*out), (1, ""));
    assert!(err.contains("is no console of keylane"), "{err}");
}
