//! Leases in the feed and on the page.

use std::sync::Arc;
use std::time::Duration;

use keylane_console::Console;
use keylane_leases::{Leases, MemoryStore};
use serde_json::json;
use testkit_browser::Browser;
use tokio::net::TcpListener;

use crate::page::{is_named, look};
use crate::served::Stream;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_held_lease_is_shown_also_without_messages() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let entered = runtime.enter();
    let store = Arc::new(MemoryStore::new());
    let leases = Leases::open(store.clone()).unwrap();
    let other = Leases::open(store).unwrap();
    let console = Console::builder().leases("accounts", &leases);
    let console = console.build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { console.serve(listener).await });
    drop(entered);
    let key = "<b>account-7</b>\u{202e}";
    let (mine, _theirs) = runtime.block_on(async {
        let mine = leases.acquire(key, MINUTE).await.unwrap();
        let theirs = other.acquire("theirs", MINUTE).await.unwrap();
        assert!(leases.try_acquire("theirs", MINUTE).await.is_err());
        (mine, theirs)
    });
    let waiting = leases.clone();
    let waits = runtime.spawn(async move { waiting.acquire("theirs", MINUTE).await.map(drop) });

    let mut feed = Stream::open(address, "/feed", None);
    let data = feed.until(|data| {
        let it = &data["body"]["leases"][0];
        // The one that waits asks now and then, and counts as asked for meanwhile.
        it["held"] == 1 && it["waiting"] == 1
    });
    let it = &data["body"]["leases"][0];
    assert_eq!(
        (&it["name"], &it["granted"]),
        (&json!("accounts"), &json!(1))
    );
    assert_eq!((&it["ran_out"], &it["taken_over"]), (&json!(0), &json!(0)));
    assert!(it["taken"].as_u64() >= Some(1), "{it}");
    assert_eq!(it["owner"], leases.owner().as_str());
    let lease = &it["leases"][0];
    assert_eq!(lease["token"], mine.token().to_string());
    assert_eq!(lease["ttl_ms"], 60_000);
    assert!(
        (1..=54_000).contains(&lease["left_ms"].as_u64().unwrap()),
        "{it}"
    );

    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("http://{address}/#leaders"));
    browser.until("document.querySelectorAll('#leases tbody tr').length == 1");
    let row = browser.run("return document.querySelector('#leases tbody tr').textContent");
    assert!(
        row.as_str().unwrap().starts_with("<b>account-7</b>U+202E"),
        "{row}"
    );
    is_named(&browser);
    for width in [400, 1_280] {
        look(&browser, width, "leases");
    }
    waits.abort();
    drop(mine);
    feed.until(|data| data["body"]["leases"][0]["leases"] == json!([]));
    browser.until("document.querySelector('#leases caption').textContent == 'No lease is held.'");
    // The console does not keep them open.
    runtime.block_on(leases.close());
    feed.until(|data| data["body"]["leases"][0]["is_closed"] == true);
    assert_eq!(browser.complaints(), [""; 0]);
}
