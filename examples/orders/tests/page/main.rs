//! The page, in a real browser: hostile names, two widths, a redrive, a restart.
//!
//! The pictures are kept in `target/tmp/orders`, for people to look at.

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;

use serde_json::{Value, json};

use support::{Service, directory};
use testkit_browser::Browser;

/// Names that would do something if they were taken for anything but text. Each that runs changes the title.
fn hostile() -> Vec<String> {
    let names = [
        "<script>document.title='hit'; alert(1)</script>",
        "<img src=x onerror=\"document.title='hit'; alert(2)\">",
        "\"><svg onload=alert(3)>",
        "'; document.title='hit'; alert(4); //",
        "</title></li><iframe src=\"https://evil.example/\"></iframe>",
        "javascript:alert(5)",
        "{{constructor.constructor('alert(6)')()}} ${alert(7)}",
        "&lt;b&gt; &amp; &quot;",
        "<link rel=stylesheet href=https://evil.example/x.css>",
        "שלום עולם",
        "__proto__",
    ];
    names.map(str::to_owned).to_vec()
}

/// Names that cannot be read as they are: they are spelled out, or cut.
fn odd() -> Vec<String> {
    vec![
        "\u{202e}live\u{202c}\u{200f}".to_owned(),
        "zero\u{200b}width\u{feff}".to_owned(),
        "a line\nanother\ttab \u{0}nul \u{1b}[31mred".to_owned(),
        "k".repeat(1_024),
        "漢".repeat(341),
        "\u{202e}".repeat(341),
        "Z̸̢̛a̷l̶g̵o̸".repeat(20),
        " ".repeat(300),
    ]
}

fn picture(browser: &Browser, name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("orders");
    std::fs::create_dir_all(&folder).expect("it is made");
    std::fs::write(folder.join(name), browser.picture()).expect("it is written");
}

/// Lanes that are busy, lanes that are stuck, and dead letters, of the worst names.
fn fill(service: &Service) {
    let order = |user: &str, order: Value| {
        let mut order = order;
        order["user"] = json!(user);
        order["cents"] = json!(100);
        let answer = service.order(&order);
        assert_eq!(answer.status, 202, "{answer:?}");
    };
    for name in hostile().iter().chain(&odd()) {
        // The id is as hostile as the user.
        let id: String = name.chars().take(40).chain("!".chars()).collect();
        order(name, json!({ "id": id, "declined": 3, "takes_ms": 0 }));
    }
    let dead = hostile().len() + odd().len();
    service.until("all are dead letters", |state| {
        state["dead_letters"] == dead
    });
    for (n, name) in hostile().iter().chain(&odd()).enumerate() {
        for _ in 0..=n % 5 {
            order(name, json!({ "takes_ms": 60_000 }));
        }
    }
    for n in 0..200 {
        order(&format!("user-{}", n % 20), json!({}));
    }
}

/// What must hold at every width.
fn look(browser: &Browser, width: u32) {
    assert_eq!(browser.dialog(), None);
    assert_eq!(browser.run("return document.title"), "orders");
    assert_eq!(browser.run("return innerWidth"), width);
    let beside = "const it = document.documentElement; return it.scrollWidth - it.clientWidth";
    assert_eq!(browser.run(beside), 0, "it can be scrolled sideways");
    let beyond = browser.run(
        "return Array.from(document.querySelectorAll('body *'))
            .filter((it) => !it.closest('.user, .order, svg'))
            .filter((it) => it.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
            .map((it) => it.outerHTML.slice(0, 200))",
    );
    assert_eq!(beyond, json!([]), "at {width}");
    // Nothing that came from a stranger has become an element.
    let made = browser.run(
        "return Array.from(document.querySelectorAll('ol *'))
            .map((it) => it.localName)
            .filter((it) => !['li', 'div', 'span', 'i', 'bdi', 'button'].includes(it))",
    );
    assert_eq!(made, json!([]));
    let small = browser.run(
        "return Array.from(document.querySelectorAll('button, dd, dt, li span, p'))
            .filter((it) => it.checkVisibility() && parseFloat(getComputedStyle(it).fontSize) < 11.5)
            .map((it) => it.className)
            .filter((it) => it !== 'mark')",
    );
    assert_eq!(small, json!([]), "too small to read");
}

#[test]
fn the_page_shows_hostile_names_as_text_and_redrives() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    fill(&service);
    let letters = hostile().len() + odd().len();
    let browser = Browser::start();

    browser.resize(1_280, 900);
    browser.open(&service.url());
    browser.until(&format!(
        "document.querySelectorAll('#letters li').length == {letters}"
    ));
    browser.until("document.querySelectorAll('#stuck li').length == 8");
    browser.until("document.getElementById('done-line').getAttribute('d').includes('L')");
    look(&browser, 1_280);
    // In full, and visible.
    let shown = browser.run(
        "return Array.from(document.querySelectorAll('#letters .user'))
            .filter((it) => it.checkVisibility()).map((it) => it.textContent)",
    );
    let shown: Vec<&str> = shown
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for name in hostile() {
        assert!(shown.contains(&&*name), "without {name:?}: {shown:?}");
    }
    for part in [
        "U+202EliveU+202CU+200F",
        "zeroU+200BwidthU+FEFF",
        "a lineU+000AanotherU+0009tab",
    ] {
        assert!(
            shown.iter().any(|it| it.contains(part)),
            "without {part:?}: {shown:?}"
        );
    }
    let cut = format!("{}… 1,024 characters", "k".repeat(160));
    assert!(shown.contains(&&*cut), "{shown:?}");
    let lanes = browser.run("return document.getElementById('stuck').textContent");
    let lanes = lanes.as_str().expect("text");
    assert!(lanes.contains("attempt 1 has run for"), "{lanes}");
    picture(&browser, "wide.png");

    browser.resize(400, 850);
    look(&browser, 400);
    picture(&browser, "narrow.png");
    browser.prefer("dark");
    picture(&browser, "narrow-dark.png");
    browser.resize(1_280, 900);
    picture(&browser, "wide-dark.png");

    // One letter: the bank has declined it as often as it would.
    browser.resize(400, 850);
    browser.run("window.first = document.querySelector('#letters li')");
    browser.click("#letters li button");
    browser.until(&format!(
        "document.querySelectorAll('#letters li').length == {}",
        letters - 1
    ));
    browser.until("!window.first.isConnected");
    service.until("it is first in its lane, or done", |state| {
        state["dead_letters"] == letters - 1
    });
    browser.resize(1_280, 900);
    browser.click("#redrive-all");
    browser.until("document.querySelectorAll('#letters li').length == 0");
    browser.until("document.querySelector('.dead .none').checkVisibility()");
    picture(&browser, "redriven.png");

    // Nothing left the origin, and the console is empty.
    let origin = format!("{}/", service.url());
    let requests = browser.requests();
    assert!(requests.len() > 5, "{requests:?}");
    let foreign: Vec<_> = requests
        .iter()
        .filter(|url| !url.starts_with(&origin))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_page_lives_through_a_kill() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    let address = service.address();
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&service.url());
    browser.until("document.getElementById('status').className == 'status live'");
    // A rate is drawn from the second on.
    browser.until("document.getElementById('done-line').getAttribute('d').includes('L')");
    service.kill();
    browser.until("document.getElementById('status').className == 'status lost'");
    picture(&browser, "lost.png");
    let service = Service::start_at(&directory, address.port());
    browser.until("document.getElementById('status').className == 'status live'");
    browser.until("document.getElementById('restarts').getAttribute('d').includes('V')");
    let answer = service.order(&json!({ "user": "ann", "cents": 100 }));
    assert_eq!(answer.status, 202);
    browser.until("document.getElementById('accepted').textContent == '1 since the start'");
}

#[test]
fn without_scripts_from_elsewhere_the_page_is_all_there_is() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    for (path, kind) in [
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
        ("/app.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let answer = service.get(path);
        assert_eq!(answer.status, 200);
        assert!(
            answer.head.contains(&format!("content-type: {kind}")),
            "{answer:?}"
        );
        let named = answer.body.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !named.contains("http:") && !named.contains("https:"),
            "{path}"
        );
    }
    let page = service.get("/").body;
    for inline in ["style=", "onclick", "<style", "<script>"] {
        assert!(!page.contains(inline), "{inline}");
    }
}
