//! One lane in full, percentiles, paused lanes, leaders, replacements.

use keylane::Dispatcher;
use keylane::source::{Features, RawMessage};
use keylane_console::{Action, Console, Leader, SourcePart, View};
use keylane_testkit::reference::ReferenceServer;
use serde_json::{Value, json};
use testkit_browser::{Browser, until};

use crate::page::{look, look_at_all_widths};
use crate::served::{Served, Stream, Work, serve};

#[test]
fn a_lane_shows_its_messages_and_its_failed_attempts() {
    let served = Served::<String>::start(|console| console);
    served.send("ann".into(), Work::Fails);
    for _ in 0..60 {
        served.send("ann".into(), Work::Holds);
    }
    served.until_in("ann", "halted");
    until("all are here", || served.find("ann")["depth"] == 61);
    let id = served.find("ann")["id"].clone();
    let path = format!("lane?dispatcher=orders&id={}", id.as_str().unwrap());
    let lane = served.get(&path).json();
    let messages = lane["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 50, "of 61: {lane}");
    assert_eq!(
        (&messages[0]["is_head"], &messages[1]["is_head"]),
        (&json!(true), &json!(false))
    );
    let ids: Vec<u64> = messages
        .iter()
        .map(|it| it["id"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(
        ids.is_sorted_by(|a, b| a < b),
        "in the order of acceptance: {ids:?}"
    );
    assert_eq!(lane["failed"][0]["attempt"], 1);
    assert_eq!(lane["failed"][0]["why"], "the handler failed: \"declined\"");

    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!(
        "{}#lane/orders/{}",
        served.url(),
        id.as_str().unwrap()
    ));
    browser.until("document.querySelectorAll('#messages li').length == 50");
    browser.until(
        "document.getElementById('messages-note').textContent.startsWith('11 more messages')",
    );
    browser.until("document.querySelector('#failed li').textContent.includes('attempt 1: the handler failed')");
    for width in [400, 1_280] {
        look(&browser, width, "lane-messages");
    }
}

#[test]
fn a_lane_shows_by_how_much_it_has_grown_in_the_last_minute() {
    let served = Served::<String>::start(|console| console);
    served.send("ann".into(), Work::Fails);
    served.until_in("ann", "halted");
    let id = served.find("ann")["id"].clone();
    let browser = Browser::start();
    let page = format!("{}#lane/orders/{}", served.url(), id.as_str().unwrap());
    browser.open(&page);
    let says = |what: &str| {
        browser.until(&format!(
            "Array.from(document.querySelectorAll('#facts > div')).some((it) => \
             /^arrivals less completions{what} in [0-9.]+ s$/.test(it.textContent))"
        ));
    };
    says("none");
    for _ in 0..12 {
        served.send("ann".into(), Work::Holds);
    }
    says("12 more");
    let ann = served.orders.lane(&"ann".to_owned());
    assert_eq!(ann.purge(), 13);
    says("1 fewer");
    // Another lane is not compared with this one.
    for _ in 0..5 {
        served.send("bob".into(), Work::Holds);
    }
    let id = served.find("bob")["id"].clone();
    browser.run(&format!(
        "location.hash = '#lane/orders/{}'",
        id.as_str().unwrap()
    ));
    browser.until("document.getElementById('lane-key').textContent == 'bob'");
    says("none");
}

/// Which position the frontier is at is not known here: a message far above it says no more than
/// where it is.
#[test]
fn a_message_of_a_source_says_its_position() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = ReferenceServer::new(Features::new().survives_restart());
    server.publish((1..=3).map(|id| RawMessage::new(vec![id]).key("ann")));
    let entered = runtime.enter();
    let orders = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
        .on_exhausted(keylane::OnExhausted::Halt)
        .spawn(|_: RawMessage| std::future::pending::<Result<(), String>>())
        .unwrap();
    let intake = orders.consume(server.source()).unwrap();
    let console = Console::builder().dispatcher("orders", &orders);
    let address = serve(&runtime, console);
    drop(entered);
    let browser = Browser::start();
    browser.open(&format!("http://{address}/#lanes"));
    browser.until("document.querySelector('#rows a')?.textContent == 'ann'");
    browser.click("#rows a");
    browser.until("document.querySelectorAll('#messages li').length == 3");
    let says = browser.run("return document.getElementById('messages').textContent");
    let says = says.as_str().unwrap();
    // Those behind the head.
    assert_eq!(says.matches(", at ").count(), 2, "{says}");
    assert!(!says.contains("holds back"), "{says}");
    drop(intake);
}

#[test]
fn a_paused_lane_is_listed_with_one_message_and_with_none() {
    let served = Served::<String>::start(|console| console);
    for n in 0..300 {
        served.send(format!("user-{n}"), Work::Holds);
    }
    for key in ["one message", "none"] {
        served.orders.lane(&key.to_owned()).pause();
    }
    served.send("one message".into(), Work::Done);
    let mut stream = served.stream("lanes?dispatcher=orders", None);
    let data = stream.until(|data| {
        let rows = data["body"]["lanes"].as_array().unwrap();
        let paused = rows.iter().filter(|row| row["state"] == "paused");
        paused
            .map(|row| row["depth"].as_u64().unwrap())
            .sum::<u64>()
            == 1
    });
    let rows = data["body"]["lanes"].as_array().unwrap();
    for key in ["one message", "none"] {
        assert_eq!(
            rows.iter().filter(|row| row["key"] == key).count(),
            1,
            "{key}: {rows:?}"
        );
    }
}

#[test]
fn percentiles_are_of_the_last_seconds() {
    let served = Served::<String>::start(|console| console);
    let orders = served.orders.clone();
    let load = served.runtime.spawn(async move {
        let mut every = tokio::time::interval(std::time::Duration::from_millis(5));
        for n in 0.. {
            every.tick().await;
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
    let data = stream.until(|data| data["body"]["dispatchers"][0]["times"]["attempt"].is_object());
    let times = &data["body"]["dispatchers"][0]["times"];
    for kind in ["wait", "attempt"] {
        let of = |name: &str| times[kind][name].as_u64().unwrap();
        assert!(
            of("p50_us") <= of("p90_us") && of("p90_us") <= of("p99_us"),
            "{times}"
        );
        assert!(
            of("p99_us") <= of("most_us") && of("most_us") < 60_000_000,
            "{times}"
        );
    }
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&served.url());
    for name in ["wait, median", "attempt, median"] {
        browser.until(&format!(
            "Array.from(document.querySelectorAll('.tiles > div')).some((it) => \
             /^{name}[0-9.]+ (µs|ms|s)90 % [0-9.]+ .*, 99 % [0-9.]+ .*, most [0-9.]+ /.test(it.textContent))"
        ));
    }
    browser.until(
        "Array.from(document.querySelectorAll('.tiles > div')).some((it) => \
         /^room left(1,000,000|999,[0-9]{3})0 lanes are full$/.test(it.textContent))",
    );
    drop(browser);
    load.abort();
    stream.until(|data| data["body"]["dispatchers"][0]["times"]["attempt"] == Value::Null);
}

#[test]
fn a_halted_message_is_replaced_where_a_text_can_be_decoded() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let entered = runtime.enter();
    let orders = Dispatcher::builder(|order: &i64| order.abs() % 10)
        .on_exhausted(keylane::OnExhausted::Halt)
        .spawn(async |order: i64| if order < 0 { Err("overdrawn") } else { Ok(()) })
        .unwrap();
    let view = View::of_keys().decode(|text: &str| text.parse::<i64>());
    let console = Console::builder()
        .dispatcher_with("orders", &orders, view)
        .allow([Action::Replace])
        .without_token();
    let address = serve(&runtime, console);
    drop(entered);
    runtime.block_on(orders.send(-3)).unwrap();
    until("it is halted", || orders.stats().halted == 1);
    let post = |path: &str, body: &Value| {
        testkit_browser::Request::new("POST", path)
            .header("origin", &format!("http://{address}"))
            .header("x-keylane-console", "1")
            .json(body)
            .send(address)
    };
    let found = post("/find", &json!({ "dispatcher": "orders", "key": "3" })).json();
    let replace = |message: &str| {
        let body = json!({
            "dispatcher": "orders", "id": found["id"], "action": "replace", "message": message,
        });
        post("/act", &body)
    };
    let wrong = replace("three");
    assert_eq!(wrong.refusal(), (422, "no_message".to_owned()));
    assert_eq!(wrong.json()["why"], "invalid digit found in string");
    assert_eq!(
        replace("4").json()["why"],
        "the key of the message is not the key of this lane: give it one with the same key"
    );
    assert_eq!(orders.stats().halted, 1);

    let browser = Browser::start();
    browser.resize(1_280, 900);
    let id = found["id"].as_str().unwrap();
    browser.open(&format!("http://{address}/#lane/orders/{id}"));
    browser.until("document.querySelector('button[data-action=replace]') !== null");
    browser.click("button[data-action=replace]");
    browser.until("document.getElementById('ask-message').checkVisibility()");
    look(&browser, 400, "replace");
    browser.run("document.getElementById('ask-message').value = '13'");
    browser.click("#ask-yes");
    browser.until("document.getElementById('acted').textContent == 'Replace is done.'");
    until("the new one is done", || orders.stats().done == 1);
}

#[test]
fn leaders_and_the_parts_of_sources_are_shown() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = ReferenceServer::new(keylane::source::Features::new().survives_restart());
    let entered = runtime.enter();
    let orders = Dispatcher::key_by_opt(|raw: &keylane::source::RawMessage| raw.key.clone())
        .on_exhausted(keylane::OnExhausted::Halt)
        .spawn(|_: keylane::source::RawMessage| async { Ok::<(), String>(()) })
        .unwrap();
    let intake = orders.consume(server.source()).unwrap();
    let parts = || {
        let part = |name: &str, lag: u64| SourcePart {
            name: name.to_owned(),
            lag: Some(lag),
            frontier: Some(format!("{lag}-1764413000000")),
            held: 7,
            beyond: 3,
            ..SourcePart::default()
        };
        let failing = SourcePart {
            trouble: Some("<b>no leader</b>".to_owned()),
            ..part("orders/2", 0)
        };
        vec![part("orders/0", 12), part("orders/1", 1_200), failing]
    };
    let leader = || {
        Some(Leader {
            id: "<i>host-1</i>".to_owned(),
            token: u64::MAX,
            is_leaving: false,
        })
    };
    let console = Console::builder()
        .intake("kafka", &intake)
        .parts("kafka", parts)
        .leader_with("billing", leader)
        .leader_with("nobody", || None)
        .leader_with("broken", || panic!("planned"));
    let address = serve(&runtime, console);
    drop(entered);
    let (_, data) = Stream::open(address, "/feed", None).next().unwrap();
    let names = |list: &Value| -> Vec<Value> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].clone())
            .collect()
    };
    assert_eq!(
        names(&data["body"]["intakes"][0]["parts"]),
        ["orders/2", "orders/1", "orders/0"]
    );
    let leaders = &data["body"]["leaders"];
    assert_eq!(leaders[0]["token"], u64::MAX.to_string());
    assert_eq!(
        (&leaders[1]["leader"], &leaders[2]["leader"]),
        (&Value::Null, &Value::Null)
    );

    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("http://{address}/#sources"));
    browser.until("document.querySelectorAll('.lags tbody tr').length == 3");
    let names = || {
        let script = "return Array.from(document.querySelectorAll('.lags tbody .name'), (it) => it.textContent)";
        browser.run(script)
    };
    assert_eq!(names(), json!(["orders/2", "orders/1", "orders/0"]));
    browser.click(".lags button[data-by=lag]");
    assert_eq!(names(), json!(["orders/1", "orders/0", "orders/2"]));
    browser.click(".lags button[data-by=name]");
    assert_eq!(names(), json!(["orders/0", "orders/1", "orders/2"]));
    browser.click(".lags button[data-by=frontier]");
    assert_eq!(names(), json!(["orders/1", "orders/0", "orders/2"]));
    crate::page::is_named(&browser);
    browser.until("document.querySelector('.lags .trouble').textContent == '<b>no leader</b>'");
    for width in [400, 1_280] {
        look(&browser, width, "parts");
    }
    browser.click("#nav a[href='#leaders']");
    browser.until("document.querySelectorAll('#elections article').length == 3");
    browser.until("document.querySelector('#elections').textContent.includes('<i>host-1</i>')");
    crate::page::is_named(&browser);
    look_at_all_widths(&browser, "leaders");
}
