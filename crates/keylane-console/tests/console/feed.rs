//! What the feed shows: hostile keys, many lanes, viewers that come again.

use std::collections::HashSet;
use std::time::Duration;

use keylane::Bytes;
use serde_json::{Value, json};

use crate::served::{Served, Work};
use testkit_browser::{Browser, until};

fn plain() -> Served {
    Served::start(|console| console)
}

#[test]
fn a_viewer_that_comes_again_goes_on_where_it_was() {
    let served = plain();
    let mut stream = served.stream("feed", None);
    let (first, data) = stream.next().unwrap();
    assert_eq!(data["body"]["dispatchers"][0]["name"], "orders");
    assert_eq!(data["points"].as_array().unwrap().len(), 1);
    let (second, data) = stream.next().unwrap();
    assert_eq!(
        data["points"].as_array().unwrap().len(),
        1,
        "only the new one"
    );
    assert_ne!(first, second);
    let (again, data) = served.stream("feed", Some(&second)).next().unwrap();
    assert_ne!(again, second, "nothing comes twice");
    assert_eq!(data["points"].as_array().unwrap().len(), 1);
    let (_, data) = served.stream("feed", Some("another-7")).next().unwrap();
    assert!(
        data["points"].as_array().unwrap().len() >= 3,
        "all that is known: {data}"
    );
}

#[test]
fn done_is_never_above_accepted_under_load() {
    let served = plain();
    let orders = served.orders.clone();
    let load = served.runtime.spawn(async move {
        for n in 0.. {
            if orders
                .send((format!("user-{}", n % 50), Work::Done))
                .await
                .is_err()
            {
                break;
            }
        }
    });
    let mut stream = served.stream("feed", None);
    let mut done = 0;
    for _ in 0..4 {
        let (_, data) = stream.next().unwrap();
        let it = &data["body"]["dispatchers"][0];
        let number = |name: &str| it[name].as_u64().unwrap();
        assert!(number("done") <= number("accepted"), "{it}");
        let reasons = it["reasons"].as_object().unwrap();
        let sum: u64 = reasons.values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(sum, number("lanes"));
        done = number("done");
    }
    assert!(done > 0);
    load.abort();
}

#[test]
fn any_text_is_a_key_and_comes_back() {
    let served = plain();
    let keys = [
        "<script>alert(1)</script>".to_owned(),
        "\u{202e}live\u{202c}".to_owned(),
        "a\nb\r\n\r\ndata: {}\u{0}\u{2028}".to_owned(),
        "\"}],\"x\":[{\"".to_owned(),
        String::new(),
        "k".repeat(10_240),
        "__proto__".to_owned(),
    ];
    for key in &keys {
        served.send(key.clone(), Work::Holds);
    }
    let mut stream = served.stream("lanes?dispatcher=orders", None);
    let data = stream.until(|data| data["body"]["lanes"].as_array().unwrap().len() == keys.len());
    for key in &keys {
        let cut: String = key.chars().take(256).collect();
        let rows = data["body"]["lanes"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"] == *cut).unwrap();
        assert_eq!(row["key_chars"], key.chars().count());
        assert_eq!(served.find(key)["id"], row["id"], "the same lane");
        let id = row["id"].as_str().unwrap();
        let lane = served
            .get(&format!("lane?dispatcher=orders&id={id}"))
            .json();
        assert_eq!(
            (&lane["state"], &lane["depth"]),
            (&json!("running"), &json!(1))
        );
    }
    let size = data.to_string().len();
    assert!(size < 20_000, "a key of ten kilobytes is cut: {size}");
}

#[test]
fn bytes_that_are_no_text_are_a_key() {
    let served = Served::<Bytes>::start(|console| console);
    let key = Bytes::from_static(b"\xff\xfe\\<b>\x00");
    served.send(key, Work::Holds);
    served.until_in("\\xff\\xfe\\\\<b>\u{0}", "running");
    let wrong = json!({ "dispatcher": "orders", "key": "\\xz" });
    assert_eq!(
        served.post("find", &wrong).refusal(),
        (422, "no_key".to_owned())
    );
}

#[test]
fn of_a_hundred_thousand_lanes_the_worst_are_listed_and_any_is_found() {
    let served = plain();
    let orders = served.orders.clone();
    served.runtime.block_on(async {
        for n in 0..100_000 {
            orders
                .send((format!("user-{n}"), Work::Holds))
                .await
                .unwrap();
        }
        for _ in 0..500 {
            orders.send(("deep".to_owned(), Work::Holds)).await.unwrap();
        }
    });
    until("all are accepted", || {
        served.orders.stats().accepted == 100_500
    });
    let mut stream = served.stream("lanes?dispatcher=orders", None);
    let (_, data) = stream.next().unwrap();
    let rows = data["body"]["lanes"].as_array().unwrap();
    assert_eq!(data["body"]["all"], 100_001);
    let keys: HashSet<&Value> = rows.iter().map(|row| &row["key"]).collect();
    assert!(keys.contains(&json!("deep")) && keys.contains(&json!("user-0")));
    assert!(
        keys.len() == rows.len() && (64..=240).contains(&rows.len()),
        "{}",
        rows.len()
    );
    assert!(data.to_string().len() < 120_000);
    let last = served.find("user-99999");
    assert_eq!(
        (&last["state"], &last["depth"]),
        (&json!("ready"), &json!(1))
    );
    assert_eq!(served.find("nobody")["state"], "empty");

    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("{}#lanes", served.url()));
    browser.until("document.getElementById('caption').textContent.includes(' of 100,001 lanes')");
    let count = browser.run("return document.querySelectorAll('#rows tr').length");
    assert!((64..=240).contains(&count.as_u64().unwrap()), "{count}");
    browser.run(
        "document.getElementById('key').value = 'user-99999'; \
         document.getElementById('search').requestSubmit()",
    );
    browser.until("document.getElementById('facts').textContent.includes('stateready')");
}

#[test]
fn lanes_are_counted_by_what_they_wait_for() {
    let served = plain();
    served.runtime.block_on(async {
        let hour = Duration::from_secs(3_600);
        for key in ["ann", "bob"] {
            let order = (key.to_owned(), Work::Holds);
            served.orders.send_when(order, hour).await.unwrap();
        }
    });
    let mut feed = served.stream("feed", None);
    let body = feed.until(|data| data["body"]["dispatchers"][0]["lanes"] == 2);
    let reasons = &body["body"]["dispatchers"][0]["reasons"];
    assert_eq!(
        (&reasons["for_time"], &reasons["other"]),
        (&json!(2), &json!(0))
    );
    let browser = Browser::start();
    browser.open(&served.url());
    browser.until(
        "document.querySelector('.legend')?.innerText.includes('wait for their time 2 (100 %)')",
    );
    let shown = browser.run("return document.querySelector('.legend').innerText");
    assert!(!shown.as_str().unwrap().contains("rate"), "{shown}");
}

#[test]
fn a_young_halted_lane_is_listed_beside_a_hundred_thousand_others() {
    let served = plain();
    // More that are older than the oldest that are listed; none of them stays with a runner for
    // good.
    for n in 0..200 {
        served.send(format!("older-{n}"), Work::Waits);
    }
    until("they wait", || served.orders.stats().backing_off == 200);
    for n in 0..63 {
        served.send(format!("busy-{n}"), Work::Holds);
    }
    until("they run", || served.orders.stats().in_flight == 63);
    served.send("young".to_owned(), Work::Fails);
    served.until_in("young", "halted");
    let orders = served.orders.clone();
    served.runtime.block_on(async {
        for n in 0..100_000 {
            let order = (format!("user-{n}"), Work::Holds);
            orders.send(order).await.unwrap();
        }
    });
    until("all are accepted", || {
        served.orders.stats().accepted == 100_264
    });
    let mut stream = served.stream("lanes?dispatcher=orders", None);
    let (_, data) = stream.next().unwrap();
    let rows = data["body"]["lanes"].as_array().unwrap();
    let young: Vec<_> = rows.iter().filter(|row| row["key"] == "young").collect();
    assert_eq!(young.len(), 1, "of {} lanes", rows.len());
    assert_eq!(young[0]["state"], "halted");
    assert!(rows.len() <= 360, "{}", rows.len());
    // Resumed, it fails again, and is the one that was halted last. Skipped, it is gone.
    assert_eq!(served.act("young", "skip").refusal().1, "not_allowed");
    served.orders.lane(&"young".to_owned()).skip().unwrap();
    let is_gone = |data: &Value| {
        let rows = data["body"]["lanes"].as_array().unwrap();
        rows.iter().all(|row| row["key"] != "young")
    };
    stream.until(is_gone);
}

#[test]
fn a_young_failing_lane_is_listed_beside_many_that_are_older() {
    let served = plain();
    // More than the oldest and the halted ones that are listed.
    for n in 0..300 {
        served.send(format!("older-{n}"), Work::Fails);
    }
    until("they halt", || served.orders.stats().halted == 300);
    served.send("young".to_owned(), Work::Waits);
    served.until_in("young", "backoff");
    let mut stream = served.stream("lanes?dispatcher=orders", None);
    let (_, data) = stream.next().unwrap();
    let rows = data["body"]["lanes"].as_array().unwrap();
    let young = rows.iter().find(|row| row["key"] == "young");
    let young = young.unwrap_or_else(|| panic!("it is not among {} lanes", rows.len()));
    assert_eq!(young["state"], "backoff");
}

#[test]
fn a_console_that_is_closed_ends_its_streams() {
    let served = plain();
    let mut stream = served.stream("feed", None);
    assert!(stream.next().is_some());
    served.console.close();
    assert!(std::iter::from_fn(|| stream.next()).count() <= 1);
}

#[test]
fn viewers_are_limited_and_one_that_leaves_makes_room() {
    let served = plain();
    // Each has had an event, so each is counted.
    let mut streams: Vec<_> = (0..256).map(|_| served.stream("feed", None)).collect();
    assert!(streams.iter_mut().all(|stream| stream.next().is_some()));
    let refused = served.get("feed");
    assert_eq!(refused.refusal(), (503, "too_many_viewers".to_owned()));
    drop(streams);
    // A stream that is refused has no event.
    until("there is room", || {
        served.stream("feed", None).next().is_some()
    });
}
