//! A source with a part that fails, in the feed and on the page.

use keylane::source::{Features, RawMessage};
use keylane::{Context, Dispatcher, OnExhausted};
use keylane_console::Console;
use keylane_testkit::reference::ReferenceServer;
use serde_json::json;
use testkit_browser::Browser;
use tokio::net::TcpListener;

use crate::page::look;
use crate::served::Stream;

#[test]
fn a_source_shows_its_counts_and_its_failed_parts_and_may_end() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = ReferenceServer::new(Features::new().survives_restart());
    server.publish((1..=3).map(|id| RawMessage::new(vec![id]).key("orders")));
    let entered = runtime.enter();
    let handler = |_: Context<_>, _: RawMessage| async { Ok::<(), std::io::Error>(()) };
    let orders = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(handler)
        .unwrap();
    let intake = orders.consume(server.source()).unwrap();
    let console = Console::builder()
        .dispatcher("orders", &orders)
        .intake("memory", &intake);
    let console = console.build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let served = console.clone();
    runtime.spawn(async move { served.serve(listener).await });
    drop(entered);

    server.faults().fail_part("orders/1", "<b>no leader</b>");
    let mut feed = Stream::open(address, "/feed", None);
    let data = feed.until(|data| {
        let it = &data["body"]["intakes"][0];
        it["acked"] == 3 && it["unconfirmed"] == 0 && it["failed_parts"][0]["part"] == "orders/1"
    });
    let it = &data["body"]["intakes"][0];
    assert_eq!(
        (&it["name"], &it["state"]),
        (&json!("memory"), &json!("running"))
    );
    assert_eq!(
        (&it["received"], &it["held"], &it["restarts"]),
        (&json!(3), &json!(0), &json!(0))
    );
    assert_eq!(it["failed_parts"][0]["why"], "<b>no leader</b>");

    let browser = Browser::start();
    browser.open(&format!("http://{address}/#sources"));
    browser.until(
        "document.querySelector('#intakes .parts')?.textContent.includes('<b>no leader</b>')",
    );
    for width in [400, 1_280] {
        look(&browser, width, "sources");
    }
    // The console does not keep the intake going.
    drop(intake);
    feed.until(|data| data["body"]["intakes"][0]["state"] == "ended");
    browser.until("document.querySelector('#intakes .state').textContent == 'ended'");
}
