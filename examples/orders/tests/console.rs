//! The console of the service, in a real browser: why a lane waits, a dead letter that is redriven, a kill.
//!
//! The pictures are kept in `target/tmp/orders`, for people to look at.

mod support;

use std::path::Path;

use serde_json::json;

use support::{Service, directory, order};
use testkit_browser::Browser;

fn picture(browser: &Browser, name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("orders");
    std::fs::create_dir_all(&folder).expect("it is made");
    std::fs::write(folder.join(name), browser.picture()).expect("it is written");
}

#[test]
fn it_shows_what_waits_redrives_a_letter_and_lives_through_a_kill() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    let port = service.address().port();
    let mut dead = order("dead", "<b>poor</b>");
    dead["declined"] = json!(3);
    let mut waits = order("waits", "slow");
    waits["takes_ms"] = json!(60_000);
    for it in [&dead, &waits] {
        assert_eq!(service.order(it).status, 202);
    }
    service.until("one is dead, one runs", |stats| {
        stats["dead_letters"] == 1 && stats["in_flight"] == 1
    });

    let browser = Browser::start();
    browser.resize(1_280, 900);
    // The service leads from its root to the console.
    browser.open(&service.url());
    browser.until("document.getElementById('status').classList.contains('live')");
    picture(&browser, "overview.png");
    browser.open(&format!("{}/console#lanes", service.url()));
    browser.until("document.getElementById('rows').textContent.includes('slow')");
    picture(&browser, "lanes.png");

    browser.open(&format!("{}/console#letters", service.url()));
    browser.until("document.getElementById('letter-rows').textContent.includes('<b>poor</b>')");
    picture(&browser, "letters.png");
    browser.click("#redrive-all");
    browser.until("document.getElementById('ask').open");
    browser.click("#ask-yes");
    // The bank has declined it as often as it would.
    service.until("it is paid", |stats| stats["done"] == 1);
    assert_eq!(service.letters(), json!([]));

    service.kill();
    browser.until("document.getElementById('status').classList.contains('lost')");
    let service = Service::start_at(&directory, port);
    browser.until("document.getElementById('status').classList.contains('live')");
    service.until("the slow one runs again", |stats| stats["in_flight"] == 1);
    assert_eq!(browser.dialog(), None);
}
