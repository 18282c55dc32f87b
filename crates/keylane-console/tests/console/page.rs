//! The page in a real browser. The pictures are kept in `target/tmp/console`, for people to look at.

use std::path::Path;

use keylane_console::Action;
use serde_json::{Value, json};

use crate::served::{Served, Work};
use testkit_browser::Browser;
use testkit_browser::until;

/// Keys that would do something if they were taken for anything but text.
fn hostile() -> Vec<String> {
    let keys = [
        "<script>document.title='hit'; alert(1)</script>",
        "<img src=x onerror=\"document.title='hit'; alert(2)\">",
        "\"><svg onload=alert(3)>",
        "</title></td><iframe src=\"https://evil.example/\"></iframe>",
        "javascript:alert(5)",
        "&lt;b&gt; &amp; &quot;",
        "שלום עולם",
        "__proto__",
        "\u{202e}live\u{202c}\u{200f}",
        "a line\nanother\ttab \u{0}nul \u{1b}[31mred",
    ];
    let mut keys: Vec<String> = keys.map(str::to_owned).to_vec();
    keys.extend([
        "k".repeat(10_240),
        "漢".repeat(341),
        " ".repeat(30),
        String::new(),
    ]);
    keys
}

fn picture(browser: &Browser, name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    std::fs::create_dir_all(&folder).expect("it is made");
    std::fs::write(folder.join(name), browser.picture()).expect("it is written");
}

/// What must hold of every view at every width.
pub(crate) fn look(browser: &Browser, width: u32, name: &str) {
    browser.resize(width, 900);
    assert_eq!(browser.dialog(), None);
    assert_eq!(browser.run("return document.title"), "keylane console");
    let beside = "const it = document.documentElement; return it.scrollWidth - it.clientWidth";
    assert_eq!(
        browser.run(beside),
        0,
        "{name} can be scrolled sideways at {width}"
    );
    let beyond = browser.run(
        "return Array.from(document.querySelectorAll('main *'))
            .filter((it) => it.checkVisibility() && !it.closest('svg, .unseen, .name'))
            .filter((it) => it.getBoundingClientRect().right > innerWidth + 0.5)
            .map((it) => it.outerHTML.slice(0, 200))",
    );
    assert_eq!(beyond, json!([]), "{name} at {width}");
    let small = browser.run(
        "return Array.from(document.querySelectorAll('main *'))
            .filter((it) => it.checkVisibility() && parseFloat(getComputedStyle(it).fontSize) < 11)
            .map((it) => it.className)",
    );
    assert_eq!(small, json!([]), "too small to read");
    picture(browser, &format!("{name}-{width}.png"));
}

pub(crate) fn look_at_all_widths(browser: &Browser, name: &str) {
    for width in [400, 800, 1_600] {
        look(browser, width, name);
    }
    browser.prefer("dark");
    look(browser, 1_280, &format!("{name}-dark"));
    browser.prefer("light");
}

/// What a screen reader needs: each control has a name, each table its headers.
pub(crate) fn is_named(browser: &Browser) {
    let nameless = browser.run(
        "return Array.from(document.querySelectorAll('button, a, input, select, section, dialog'))
            .filter((it) => it.checkVisibility())
            .filter((it) => !(it.textContent.trim() && it.matches('button, a')))
            .filter((it) => !it.labels?.length && !it.getAttribute('aria-labelledby'))
            .map((it) => it.outerHTML.slice(0, 200))",
    );
    assert_eq!(nameless, json!([]));
    let headless = browser.run(
        "return Array.from(document.querySelectorAll('table'))
            .filter((it) => it.checkVisibility())
            .filter((it) => !it.caption?.textContent || !it.tHead?.rows.length
                || Array.from(it.tHead.rows[0].cells).some((th) => th.scope != 'col' || !th.textContent))
            .map((it) => it.outerHTML.slice(0, 200))",
    );
    assert_eq!(headless, json!([]), "a table without a caption or heads");
    let landmarks = browser.run(
        "return ['header', 'nav[aria-label]', 'main', '[role=status]', 'h1', 'html[lang]']
            .filter((it) => !document.querySelector(it))",
    );
    assert_eq!(landmarks, json!([]));
}

fn fill(served: &Served) {
    let works = [Work::Holds, Work::Fails, Work::Waits];
    for (n, key) in hostile().into_iter().enumerate() {
        for _ in 0..=n % 5 {
            served.send(key.clone(), works[n % 3]);
        }
    }
    for n in 0..40 {
        served.send(
            format!("user-{n}"),
            if n % 9 == 0 { Work::Holds } else { Work::Done },
        );
    }
}

#[test]
fn every_view_shows_hostile_keys_as_text() {
    let served = Served::start(|console| console.allow(Action::ALL));
    fill(&served);
    let lanes = hostile().len() + 5;
    until("all others are done", || {
        served.orders.stats().lanes == lanes
    });
    served.orders.lane(&"paused one".to_owned()).pause();
    served.send("paused one".into(), Work::Done);

    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&served.url());
    browser.until("document.getElementById('status').className == 'status live'");
    browser.until("document.querySelectorAll('#dispatchers article').length == 1");
    browser.until("document.getElementById('line-1').getAttribute('d').includes('L')");
    is_named(&browser);
    look_at_all_widths(&browser, "overview");
    let legend = browser.run("return document.querySelector('.legend').textContent");
    assert!(legend.as_str().unwrap().contains("paused 1 ("), "{legend}");

    browser.click("#nav a[href='#lanes']");
    browser.until(&format!(
        "document.querySelectorAll('#rows tr').length == {}",
        lanes + 1
    ));
    is_named(&browser);
    look_at_all_widths(&browser, "lanes");
    let made = browser.run(
        "return Array.from(document.querySelectorAll('#rows *'))
            .map((it) => it.localName)
            .filter((it) => !['tr', 'td', 'a', 'span', 'bdi'].includes(it))",
    );
    assert_eq!(made, json!([]));
    let shown = browser
        .run("return Array.from(document.querySelectorAll('#rows a'), (it) => it.textContent)");
    let shown: Vec<&str> = shown
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let cut = format!("{}… 10,240 characters", "k".repeat(256));
    for part in [
        &*hostile()[0],
        &hostile()[3],
        "U+202EliveU+202CU+200F",
        &cut,
        "(empty)",
    ] {
        assert!(shown.contains(&part), "without {part:?}: {shown:?}");
    }

    // Sorted, and filtered, by keyboard as by mouse: they are buttons and a select.
    browser.click("th button[data-sort=depth]");
    browser.until("document.querySelector('th[aria-sort=descending]').textContent == 'Depth'");
    let depths = browser.run(
        "return Array.from(document.querySelectorAll('#rows td:nth-child(3)'), (it) => +it.textContent)",
    );
    let depths: Vec<u64> = serde_json::from_value(depths).unwrap();
    assert!(depths.is_sorted_by(|a, b| a >= b), "{depths:?}");
    browser.run("const it = document.getElementById('filter'); it.value = 'paused'; it.onchange()");
    browser.until("document.querySelectorAll('#rows tr').length == 1");

    browser.click("#nav a[href='#sources']");
    browser.until("document.querySelector('#sources .none').checkVisibility()");
    is_named(&browser);

    let origin = format!("http://{}/", served.address);
    let foreign: Vec<_> = browser.requests();
    let foreign: Vec<_> = foreign
        .iter()
        .filter(|url| !url.starts_with(&origin))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_lane_is_searched_for_and_acted_on_once_it_is_confirmed() {
    let served = Served::start(|console| console.allow(Action::ALL));
    let key = &hostile()[0];
    served.send(key.clone(), Work::Fails);
    served.send(key.clone(), Work::Holds);
    served.until_in(key, "halted");
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("{}#lanes", served.url()));
    browser.until("document.querySelectorAll('#rows tr').length == 1");
    let script = format!(
        "document.getElementById('key').value = {}; \
         document.getElementById('search').requestSubmit()",
        json!(key)
    );
    browser.run(&script);
    browser.until("document.getElementById('facts').textContent.includes('halted')");
    assert_eq!(
        browser.run("return document.getElementById('lane-key').textContent"),
        **key
    );
    is_named(&browser);
    look_at_all_widths(&browser, "lane");

    browser.click("button[data-action=skip]");
    browser.until("document.getElementById('ask').open");
    is_named(&browser);
    look_at_all_widths(&browser, "asked");
    browser.click("#ask button[value=no]");
    browser.until("!document.getElementById('ask').open");
    assert_eq!(served.find(key)["state"], "halted", "it was not confirmed");
    browser.resize(1_280, 900);
    browser.click("button[data-action=skip]");
    browser.click("#ask-yes");
    browser.until("document.getElementById('acted').textContent == 'Skip is done.'");
    browser.until("document.getElementById('facts').textContent.includes('running')");
    browser.until("document.querySelectorAll('#timeline li').length >= 2");
    browser.click("button[data-action=skip]");
    browser.click("#ask-yes");
    browser
        .until("document.getElementById('acted').textContent.includes('did nothing: in flight')");
    picture(&browser, "refused.png");
}

#[test]
fn the_page_lives_through_a_restart() {
    let served = Served::<String>::start(|console| console);
    for n in 0..20 {
        served.send(format!("user-{n}"), Work::Done);
    }
    until("all are done", || served.orders.stats().done == 20);
    let (address, url) = (served.address, served.url());
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&url);
    browser
        .until("document.querySelector('#dispatchers article')?.textContent.includes('20 in all')");
    // Each pair of figures that is ever shown.
    browser.run(
        "window.pairs = [];
         new MutationObserver(() => {
             const notes = document.querySelectorAll('#dispatchers .note');
             window.pairs.push([notes[0], notes[1]].map((it) => parseInt(it.textContent)));
         }).observe(document.getElementById('dispatchers'),
             { subtree: true, childList: true, characterData: true })",
    );
    served.runtime.shutdown_background();
    browser.until("document.getElementById('status').className == 'status lost'");
    picture(&browser, "lost.png");
    let served = Served::<String>::start_at(address.port(), |console| console);
    for n in 0..3 {
        served.send(format!("user-{n}"), Work::Done);
    }
    browser.until("document.getElementById('status').className == 'status live'");
    browser
        .until("document.querySelector('#dispatchers article')?.textContent.includes('3 in all')");
    browser.until("document.getElementById('notice').textContent.includes('started again')");
    picture(&browser, "restarted.png");
    let wrong = browser.run("return window.pairs.filter(([accepted, done]) => done > accepted)");
    assert_eq!(wrong, json!([]));
}

#[test]
fn the_chart_goes_on_behind_another_page() {
    let served = Served::<String>::start(|console| console);
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&served.url());
    let points = "(document.getElementById('line-0').getAttribute('d')?.split('L').length ?? 0)";
    browser.until(&format!("{points} >= 3"));
    browser.run("location.hash = '#sources'");
    browser.until("document.getElementById('sources').checkVisibility()");
    browser.run("location.hash = '#overview'");
    browser.until("document.getElementById('overview').checkVisibility()");
    browser.until(&format!("{points} >= 5"));
    let back = browser.run(
        "const x = document.getElementById('line-0').getAttribute('d')
             .slice(1).split('L').map((point) => parseFloat(point));
         return x.filter((it, index) => index > 0 && it <= x[index - 1])",
    );
    assert_eq!(back, json!([]), "the line goes back");
}

#[test]
fn a_lane_of_a_new_process_grows_from_its_own_beginning() {
    let served = Served::<String>::start(|console| console);
    for _ in 0..9 {
        served.send("ann".to_owned(), Work::Holds);
    }
    let (address, url) = (served.address, served.url());
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("{url}#lanes"));
    browser.until("document.querySelectorAll('#rows tr').length == 1");
    browser.click("#rows a");
    let facts = "document.getElementById('facts').textContent";
    browser.until(&format!("{facts}.includes('none in ')"));
    // Each text that is ever shown.
    browser.run(
        "window.texts = [];
         const facts = document.getElementById('facts');
         new MutationObserver(() => window.texts.push(facts.textContent))
             .observe(facts, { subtree: true, childList: true, characterData: true })",
    );
    served.runtime.shutdown_background();
    browser.until("document.getElementById('status').className == 'status lost'");
    let served = Served::<String>::start_at(address.port(), |console| console);
    served.send("ann".to_owned(), Work::Holds);
    browser.until("document.getElementById('status').className == 'status live'");
    browser.until(&format!("{facts}.includes('none in ')"));
    let fewer = browser.run("return window.texts.filter((it) => it.includes('fewer'))");
    assert_eq!(fewer, json!([]));
}

#[test]
fn a_token_is_asked_for_and_opens_the_page() {
    let served = Served::<String>::start(|console| console.token("a token of many bytes"));
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&served.url());
    browser.until("document.getElementById('sign-in').checkVisibility()");
    let sign_in = |token: &str| {
        browser.run(&format!(
            "document.getElementById('token').value = {};
             document.getElementById('sign-in-form').requestSubmit()",
            json!(token)
        ));
    };
    sign_in("wrong");
    browser.until("document.getElementById('notice').textContent.includes('wrong token')");
    is_named(&browser);
    look_at_all_widths(&browser, "sign-in");
    sign_in("a token of many bytes");
    browser.until("document.querySelectorAll('#dispatchers article').length == 1");
    assert_eq!(
        browser.run("return document.cookie"),
        "",
        "no script reads it"
    );
    assert_eq!(browser.run("return location.search"), "");
    // Signed out, it shows nothing, and its feed does not go on.
    for width in [400, 1_280] {
        look(&browser, width, "signed-in");
    }
    browser.click("#sign-out");
    browser.until("document.getElementById('sign-in').checkVisibility()");
    assert_eq!(
        browser.run("return document.getElementById('dispatchers').childElementCount"),
        0
    );
    assert_eq!(
        browser.run("return document.getElementById('sign-out').hidden"),
        true
    );
    sign_in("a token of many bytes");
    browser.until("document.querySelectorAll('#dispatchers article').length == 1");
}
