//! What the program says when a console does not do what it is asked for.

use std::fs;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use keylane_console::Builder;
use keylane_inbox::Inbox;
use tokio::net::TcpListener;

use crate::served::{Served, answer, inbox_with_letters, letters, program, runtime};

/// The error of a command line, which fails.
fn error(place: &[&str], args: &[&str]) -> String {
    let (code, out, err) = letters(place, args);
    assert_eq!((code, &*out), (1, ""), "{err}");
    err
}

/// A service whose inbox has letters, in as many stores as there are names.
fn served(names: &[&str], set: impl FnOnce(Builder) -> Builder) -> (Served, tempfile::TempDir) {
    let directory = inbox_with_letters();
    let inbox = runtime().block_on(Inbox::open(directory.path())).unwrap();
    let served = Served::start(|console| {
        let with = |console: Builder, name: &&str| console.letters(name, inbox.letters());
        set(names.iter().fold(console, with))
    });
    (served, directory)
}

#[test]
fn a_token_comes_from_a_file_or_the_environment() {
    const TOKEN: &str = "canary-4711-canary-4711-canary-4711";
    let (served, directory) = served(&["orders"], |console| console.token(TOKEN));
    let url = served.url();
    let place = ["--console", &url];
    let why = error(&place, &["list"]);
    assert!(
        why.contains("--token-file") && why.contains("KEYLANE_CONSOLE_TOKEN"),
        "{why}"
    );
    let file = directory.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let file = file.to_str().unwrap();
    let by_file = served.ok(&["list", "--token-file", file]);
    assert_eq!(by_file.lines().count(), 120);
    let mut program = program();
    program.env("KEYLANE_CONSOLE_TOKEN", TOKEN).arg("letters");
    let (code, by_env, _) = answer(program.args(place));
    assert_eq!((code, by_env), (0, by_file));
    fs::write(file, "canary-0815").unwrap();
    let why = error(&place, &["list", "--token-file", file]);
    assert!(
        why.contains("refused the token") && !why.contains("canary"),
        "{why}"
    );
    let why = error(&place, &["list", "--token-file", "/nowhere"]);
    assert!(why.contains("/nowhere"), "{why}");
}

#[test]
fn a_console_that_only_shows_says_what_to_allow() {
    let (served, _directory) = served(&["orders"], |console| console);
    let url = served.url();
    for args in [&["redrive", "--all"][..], &["purge", "1"]] {
        let why = error(&["--console", &url], args);
        assert!(why.contains("Builder::allow"), "{why}");
    }
    assert_eq!(served.ok(&["list"]).lines().count(), 120);
}

#[test]
fn one_of_several_stores_is_named() {
    let (served, _directory) = served(&["orders", "mail"], |console| console);
    let url = served.url();
    for args in [&["list"][..], &["list", "--letters", "post"]] {
        let why = error(&["--console", &url], args);
        assert!(why.contains(r#""orders", "mail" with --letters"#), "{why}");
    }
    let why = error(&[], &["list", "--letters", "mail"]);
    assert!(why.contains("--console"), "{why}");
    let mail = served.ok(&["list", "--letters", "mail"]);
    assert_eq!(mail.lines().count(), 120);
}

#[test]
fn what_is_no_console_is_told_from_nothing() {
    let page = Router::new().route(
        "/ops/console/about",
        get(async || Html("<h1>About us</h1>")),
    );
    let page = Served::with(page);
    let root = format!("http://{}/", page.address);
    let (served, _directory) = served(&["orders"], |console| console);
    let below = format!("{}/lanes", served.url());
    for url in [&root, &page.url(), &below] {
        let why = error(&["--console", url], &["list"]);
        assert!(why.contains("is no console of keylane"), "{why}");
    }
    // A port at which nothing listens.
    let listener = runtime()
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let why = error(&["--console", &url], &["list"]);
    assert!(
        why.contains("no answer from") && why.contains("start the service"),
        "{why}"
    );
    for url in ["http://ops.example/", "https://a:b@localhost/", "orders"] {
        assert_eq!(letters(&["--console", url], &["list"]).0, 64, "{url}");
    }
    let both = ["--console", &root, "--dir", "."];
    assert_eq!(letters(&both, &["list"]).0, 64);
}
