//! A source with a part that fails, in the feed and on the page.

use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::{Features, RawMessage};
use keylane::{Context, Dispatcher, OnExhausted};
use keylane_console::Console;
use keylane_testkit::reference::{Call, ReferenceServer};
use serde_json::json;
use testkit_browser::Browser;

use crate::page::{is_named, look, look_at_all_widths};
use crate::served::{Stream, serve};

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
    let address = serve(&runtime, console);
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
    is_named(&browser);
    look_at_all_widths(&browser, "sources");
    // The console does not keep the intake going.
    drop(intake);
    feed.until(|data| data["body"]["intakes"][0]["state"] == "ended");
    browser.until("document.querySelector('#intakes .state').textContent == 'ended'");
}

#[test]
fn a_source_shows_the_acks_that_are_not_confirmed_and_its_last_error() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = ReferenceServer::new(Features::new().survives_restart());
    let browser = Browser::start();
    server.publish((1..=3).map(|id| RawMessage::new(vec![id]).key("orders")));
    let entered = runtime.enter();
    let orders = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(|_: RawMessage| async { Ok::<(), std::io::Error>(()) })
        .unwrap();
    // It takes the acks, and is asked to confirm them only after this test.
    let settings = IntakeSettings::new().confirm_every(Duration::from_secs(600));
    let intake = orders.consume_with(server.source(), settings).unwrap();
    let address = serve(&runtime, Console::builder().intake("memory", &intake));
    drop(entered);
    browser.open(&format!("http://{address}/#sources"));
    let shown = |text: &str| {
        browser.until(&format!(
            "document.querySelector('#intakes')?.innerText.includes('{text}')"
        ));
    };
    shown("3 not confirmed");
    look(&browser, 400, "unconfirmed");
    server.faults().fail(Call::Receive, usize::MAX);
    server.publish([RawMessage::new(vec![4]).key("orders")]);
    shown("last error: ");
    let stats = intake.stats();
    assert!(
        stats.last_error.is_some() && stats.restarts > 0,
        "{stats:?}"
    );
    look(&browser, 400, "last-error");
}

#[test]
fn a_source_shows_for_how_long_its_messages_are_held() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lease = Duration::from_secs(3);
    let server = ReferenceServer::new(Features::new().survives_restart().lease(lease));
    server.publish([RawMessage::new(vec![1]).key("orders")]);
    let entered = runtime.enter();
    let orders = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(|_: RawMessage| std::future::pending::<Result<(), std::io::Error>>())
        .unwrap();
    let intake = orders.consume(server.source()).unwrap();
    let other = ReferenceServer::new(Features::new().survives_restart());
    let kept = orders.consume(other.source()).unwrap();
    let console = Console::builder()
        .intake("leased", &intake)
        .intake("kept", &kept);
    let address = serve(&runtime, console);
    drop(entered);

    let mut feed = Stream::open(address, "/feed", None);
    let data = feed.until(|data| data["body"]["intakes"][0]["hold"].is_object());
    let hold = &data["body"]["intakes"][0]["hold"];
    assert_eq!(hold["lasts_ms"], 3_000);
    let (left, ago) = (&hold["left_ms"], &hold["extended_ms"]);
    let sum = left.as_u64().unwrap() + ago.as_u64().unwrap();
    assert!((2_990..=3_000).contains(&sum) || *left == 0, "{hold}");
    assert!(data["body"]["intakes"][1].get("hold").is_none());

    let browser = Browser::start();
    browser.open(&format!("http://{address}/#sources"));
    browser.until(
        "document.querySelector('.hold')?.textContent.startsWith('messages are held for 3.0 s, last extended ')",
    );
    browser.until("parseFloat(document.querySelector('.hold i').style.width) > 20");
    let shown = "Array.from(document.querySelectorAll('.hold'), (it) => it.checkVisibility())";
    assert_eq!(
        browser.run(&format!("return {shown}")),
        json!([true, false])
    );
    for width in [400, 1_280] {
        look(&browser, width, "hold");
    }
    let tile = |name: &str, value: &str| {
        browser.until(&format!(
            "Array.from(document.querySelectorAll('#intakes article:first-child .tiles > div')) \
             .some((it) => it.textContent.startsWith('{name}{value}'))"
        ));
    };
    for (name, value) in [
        ("received", "1"),
        ("acked", "0"),
        ("held", "1"),
        ("beside full lanes", "0"),
        ("deferred", "0"),
        ("restarts", "0"),
    ] {
        tile(name, value);
    }
    // The source does not answer, and nothing is extended.
    server.faults().be_slow(Duration::from_secs(600));
    browser.until("document.querySelector('.hold.over')?.textContent.includes('over: other processes may have')");
    look(&browser, 400, "hold-over");
}
