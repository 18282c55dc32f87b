//! Dead letters: pages, filters, single letters, jobs; of an inbox too.

use keylane::{Dispatcher, OnExhausted};
use keylane_console::{Action, StoredLetter};
use keylane_inbox::{Inbox, NewMessage};
use serde_json::{Value, json};
use testkit_browser::{Browser, until};

use crate::page::{is_named, look, look_at_all_widths};
use crate::served::Served;
use crate::shelf::Shelf;

fn served(shelf: &Shelf) -> Served {
    let shelf = shelf.clone();
    Served::start(move |console| console.letters("dead", shelf).allow(Action::ALL))
}

fn act(served: &Served, action: &str, which: &Value) -> testkit_browser::Answer {
    let mut body = json!({ "name": "dead", "action": action });
    body.as_object_mut()
        .unwrap()
        .extend(which.as_object().unwrap().clone());
    served.post("letters/act", &body)
}

/// Waits until the job with this action has ended.
fn ended(served: &Served, action: &str) -> Value {
    let mut stream = served.stream("feed", None);
    let data = stream.until(|data| {
        let job = &data["body"]["letters"][0]["job"];
        job["action"] == action && job["state"] != "running" && job["state"] != "stopping"
    });
    data["body"]["letters"][0]["job"].clone()
}

#[test]
fn letters_come_in_pages_and_a_filter_chooses() {
    let served = served(&Shelf::with(120));
    let first = served.get("letters?name=dead").json();
    let letters = first["letters"].as_array().unwrap();
    assert_eq!((letters.len(), &letters[0]["id"]), (50, &json!("1")));
    assert_eq!(letters[0]["key"], "odd");
    assert_eq!(letters[0]["payload"]["form"], "json");
    assert_eq!(letters[0]["at_ms"], 1_000);
    assert_eq!(first["next"], "50");
    let last = served.get("letters?name=dead&after=100").json();
    assert_eq!(
        (last["letters"].as_array().unwrap().len(), &last["next"]),
        (20, &Value::Null)
    );
    let even = served
        .get("letters?name=dead&filter=even%20declined")
        .json();
    let ids: Vec<_> = even["letters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["id"])
        .collect();
    assert_eq!(
        (ids.len(), ids[0], ids[49]),
        (50, &json!("2"), &json!("100"))
    );
    let none = served.get("letters?name=dead&filter=nobody").json();
    assert_eq!(
        none,
        json!({ "letters": [], "next": null, "looked_at": 120 })
    );
    assert_eq!(
        served.get("letter?name=dead&id=7").json()["payload"]["shown"],
        "{\"order\":7}"
    );
    let wrong = served.get("letter?name=dead&id=700").refusal();
    assert_eq!(wrong, (404, "unknown_letter".to_owned()));
    let wrong = served.get("letters?name=other").refusal();
    assert_eq!(wrong, (404, "no_such_letters".to_owned()));
}

#[test]
fn one_letter_is_redriven_or_purged_at_once() {
    let shelf = Shelf::with(3);
    let served = served(&shelf);
    let answer = act(&served, "redrive_letters", &json!({ "ids": ["2", "9"] }));
    assert_eq!(answer.json(), json!({ "letters": 1 }));
    assert_eq!(shelf.redriven(), [2]);
    let answer = act(&served, "purge_letters", &json!({ "ids": ["1"] }));
    assert_eq!(answer.json(), json!({ "letters": 1 }));
    assert_eq!((shelf.len(), shelf.redriven().len()), (1, 1));
    // Neither, or both, must not mean all.
    for which in [json!({}), json!({ "ids": ["3"], "filter": "" })] {
        let refused = act(&served, "purge_letters", &which).refusal();
        assert_eq!(refused, (400, "bad_request".to_owned()));
    }
    assert_eq!(act(&served, "pause", &json!({ "ids": ["3"] })).status, 400);
    assert_eq!(shelf.len(), 1);
    shelf.fail();
    let failed = act(&served, "redrive_letters", &json!({ "ids": ["3"] }));
    assert_eq!(failed.json()["why"], "the disk is <b>full</b>");
    assert_eq!(failed.refusal(), (502, "store_failed".to_owned()));
}

#[test]
fn all_letters_of_a_filter_are_redriven_in_order_as_one_job() {
    let shelf = Shelf::with(1_000);
    let served = served(&shelf);
    let gate = shelf.hold();
    let begun = act(&served, "redrive_letters", &json!({ "filter": "even" }));
    assert_eq!(begun.json(), json!({ "letters": null }));
    // One job at a time, and nothing beside it.
    for which in [json!({ "filter": "" }), json!({ "ids": ["1"] })] {
        let refused = act(&served, "purge_letters", &which).refusal();
        assert_eq!(refused, (409, "job_runs".to_owned()));
    }
    gate.open();
    let job = ended(&served, "redrive_letters");
    assert_eq!(
        (&job["state"], &job["done"], &job["seen"]),
        (&json!("done"), &json!(500), &json!(1_000))
    );
    let even: Vec<u64> = (1..=500).map(|n| 2 * n).collect();
    assert_eq!(shelf.redriven(), even);
    assert_eq!(
        act(&served, "purge_letters", &json!({ "filter": "" })).status,
        200
    );
    until("all are purged", || shelf.len() == 0);
}

#[test]
fn a_letter_that_comes_during_the_job_is_not_taken() {
    let shelf = Shelf::with(1);
    let served = served(&shelf);
    // It fails again, behind the others.
    shelf.add(StoredLetter {
        id: "5".to_owned(),
        at: Some(std::time::SystemTime::now() + std::time::Duration::from_secs(3_600)),
        ..StoredLetter::default()
    });
    act(&served, "redrive_letters", &json!({ "filter": "" }));
    let job = ended(&served, "redrive_letters");
    assert_eq!((&job["done"], &job["seen"]), (&json!(1), &json!(2)));
    assert_eq!(shelf.redriven(), [1]);
}

#[test]
fn a_job_is_stopped_and_a_failed_one_says_why() {
    let shelf = Shelf::with(1_000);
    let served = served(&shelf);
    let stop = || served.post("letters/stop", &json!({ "name": "dead" }));
    assert_eq!(stop().refusal(), (409, "no_job".to_owned()));
    let _gate = shelf.hold();
    act(&served, "redrive_letters", &json!({ "filter": "" }));
    assert_eq!(stop().status, 200);
    let job = ended(&served, "redrive_letters");
    assert_eq!((&job["state"], shelf.len()), (&json!("stopped"), 1_000));
    shelf.fail();
    act(&served, "purge_letters", &json!({ "filter": "" }));
    let job = ended(&served, "purge_letters");
    assert_eq!(
        (&job["state"], &job["why"]),
        (&json!("failed"), &json!("the disk is <b>full</b>"))
    );
}

#[test]
fn letters_have_the_same_guards_as_lanes() {
    let shelf = Shelf::with(3);
    let read_only = {
        let shelf = shelf.clone();
        Served::<String>::start(move |console| {
            console.letters("dead", shelf).allow([Action::Purge])
        })
    };
    for action in ["redrive_letters", "purge_letters"] {
        for which in [json!({ "ids": ["1"] }), json!({ "filter": "" })] {
            let refused = act(&read_only, action, &which).refusal();
            assert_eq!(refused, (403, "not_allowed".to_owned()));
        }
    }
    let stop = read_only.post("letters/stop", &json!({ "name": "dead" }));
    assert_eq!(stop.refusal(), (403, "not_allowed".to_owned()));
    // A foreign page neither reads nor acts.
    let body = json!({ "name": "dead", "action": "purge_letters", "filter": "" });
    let allowed = served(&shelf);
    for path in ["letters/act", "letters/stop"] {
        let plain = crate::served::post(path).json(&body).send(allowed.address);
        assert_eq!(plain.refusal().0, 403, "{path}");
    }
    for path in ["letters?name=dead", "letter?name=dead&id=1"] {
        let foreign = crate::served::get(path).header("sec-fetch-site", "cross-site");
        assert_eq!(foreign.send(allowed.address).refusal().0, 403, "{path}");
    }
    assert_eq!(shelf.len(), 3);
}

#[test]
fn the_letters_of_an_inbox_are_shown_and_handled_again() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (inbox, orders, intake) = runtime.block_on(async {
        let inbox = Inbox::open(directory.path().join("orders")).await.unwrap();
        let fails = std::sync::atomic::AtomicBool::new(true);
        let orders = Dispatcher::builder(|order: &keylane::source::RawMessage| order.key.clone())
            .on_exhausted(OnExhausted::AtSource)
            .spawn(move |_: keylane::source::RawMessage| {
                let fails = fails.swap(false, std::sync::atomic::Ordering::Relaxed);
                async move { if fails { Err("declined") } else { Ok(()) } }
            })
            .unwrap();
        let intake = orders.consume(inbox.source()).unwrap();
        let message = NewMessage::new("ann", "{\"cents\":100}").header("trace", "<i>7</i>");
        inbox.accept_message(message).await.unwrap();
        (inbox, orders, intake)
    });
    let letters = inbox.letters();
    let served =
        Served::<String>::start(|console| console.letters("dead", letters).allow(Action::ALL));
    let mut found = Value::Null;
    until("it is a letter", || {
        found = served.get("letters?name=dead").json();
        found["letters"].as_array().unwrap().len() == 1
    });
    let letter = &found["letters"][0];
    assert_eq!(
        (&letter["key"], &letter["cause"]),
        (&json!("ann"), &json!("failed"))
    );
    assert!(letter["error"].as_str().unwrap().contains("declined"));
    let id = letter["id"].as_str().unwrap();
    let one = served.get(&format!("letter?name=dead&id={id}")).json();
    assert_eq!(one["headers"], json!([["trace", "<i>7</i>"]]));
    assert_eq!(
        act(&served, "redrive_letters", &json!({ "ids": [id] })).json(),
        json!({ "letters": 1 })
    );
    until("it is handled", || orders.stats().done == 1);
    runtime.block_on(async {
        drop(intake);
        orders.drain().await;
    });
}

#[test]
fn letters_are_looked_at_and_redriven_on_the_page() {
    let shelf = Shelf::with(120);
    shelf.add(StoredLetter {
        id: "1000".to_owned(),
        key: Some("<script>document.title='hit'</script>".into()),
        payload: "\u{202e}<img src=x onerror=alert(1)>\n".into(),
        headers: vec![(
            "<b>name</b>".to_owned(),
            keylane::Bytes::from_static(b"\xff"),
        )],
        cause: "undecodable".to_owned(),
        error: "hostile <i>error</i>".to_owned(),
        ..StoredLetter::default()
    });
    let served = served(&shelf);
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("{}#letters", served.url()));
    browser.until("document.querySelectorAll('#letter-rows > li').length == 50");
    is_named(&browser);
    look_at_all_widths(&browser, "letters");
    browser.click("#letters-next");
    browser.until("document.querySelector('#letter-rows .name').href.endsWith('/51')");
    // A page that comes to the front again stays where it is, with what was typed.
    browser.run(
        "document.getElementById('letter-filter').value = 'even';
         document.getElementById('status-text').textContent = 'in the background';
         document.dispatchEvent(new Event('visibilitychange'))",
    );
    browser.until("document.getElementById('status-text').textContent.startsWith('up for')");
    let shown = browser.run("return document.querySelector('#letter-rows .name').href");
    assert!(shown.as_str().unwrap().ends_with("/51"), "{shown}");
    // What was typed and not submitted is not asked for.
    browser.click("#letters-next");
    browser.until("document.querySelector('#letter-rows .name').href.endsWith('/101')");
    let filter = |words: &str| {
        browser.run(&format!(
            "document.getElementById('letter-filter').value = {}; \
             document.getElementById('letter-form').requestSubmit()",
            json!(words)
        ));
    };
    filter("hostile");
    browser.until("document.querySelectorAll('#letter-rows > li').length == 1");
    browser.click("#letter-rows a");
    browser.until("document.getElementById('letter-error').textContent == 'hostile <i>error</i>'");
    browser.until("document.getElementById('letter-payload').textContent.startsWith('U+202E<img')");
    is_named(&browser);
    look_at_all_widths(&browser, "letter");
    browser.click("#purge-one");
    browser.click("#ask-yes");
    browser
        .until("document.getElementById('letter-acted').textContent == 'Purge is done: 1 letter.'");
    assert_eq!(shelf.len(), 120);

    browser.click("#letters-back");
    filter("even");
    browser.until("document.querySelectorAll('#letter-rows > li').length == 50");
    let gate = shelf.hold();
    browser.click("#redrive-all");
    browser.click("#ask-yes");
    browser.until("document.getElementById('job-stop').checkVisibility()");
    browser.until("document.getElementById('redrive-all').disabled");
    look(&browser, 400, "job");
    // A stop asks, and is not confirmed.
    browser.click("#job-stop");
    browser.until("document.getElementById('ask-title').textContent == 'Stop?'");
    browser.click("#ask button[value=no]");
    gate.open();
    browser.until("document.getElementById('job').textContent.includes('is done: 60 of 120')");
    browser.until("document.querySelectorAll('#letter-rows > li').length == 0");
    assert_eq!((shelf.len(), shelf.redriven().len()), (60, 60));
    assert_eq!(browser.complaints(), [""; 0]);

    // The store says why it has failed.
    filter("odd");
    browser.until("document.querySelectorAll('#letter-rows > li').length == 50");
    browser.click("#letter-rows a");
    browser.until("document.getElementById('redrive-one').checkVisibility()");
    shelf.fail();
    browser.click("#redrive-one");
    browser.click("#ask-yes");
    browser.until(
        "document.getElementById('letter-acted').textContent.includes('the disk is <b>full</b>')",
    );

    // Nothing can be done to a letter that is not shown.
    browser.run("location.hash = location.hash.replace(/[^/]*$/, '0')");
    browser.until("document.body.textContent.includes('The letter was not read: ')");
    for button in ["redrive-one", "purge-one"] {
        browser.until(&format!(
            "!document.getElementById('{button}').checkVisibility()"
        ));
    }
}

#[test]
fn a_payload_of_json_is_indented_and_nothing_in_it_changes() {
    let shelf = Shelf::with(0);
    let payload = r#"{"id":9007199254740993,"rate": 1.0 ,"far":[1e400,-0,{}, []],"id":"a, \"b\": [c]","e":"\u00e9"}"#;
    shelf.add(StoredLetter {
        id: "1".to_owned(),
        payload: payload.into(),
        ..StoredLetter::default()
    });
    let served = served(&shelf);
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("{}#letter/dead/1", served.url()));
    browser.until("document.getElementById('letter-form-name').textContent == 'json'");
    let shown = browser.run("return document.getElementById('letter-payload').textContent");
    let lines = [
        "{",
        r#"  "id": 9007199254740993,"#,
        r#"  "rate": 1.0,"#,
        r#"  "far": ["#,
        "    1e400,",
        "    -0,",
        "    {},",
        "    []",
        "  ],",
        r#"  "id": "a, \"b\": [c]","#,
        r#"  "e": "\u00e9""#,
        "}",
    ];
    assert_eq!(shown, lines.join("\n"));
    look(&browser, 400, "payload");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn what_is_cut_says_so() {
    let shelf = Shelf::with(2_100);
    let long = |of: &str| of.repeat(70_000);
    let mut headers = vec![(long("n"), keylane::Bytes::from(long("v")))];
    headers.extend((0..1_030).map(|n| (format!("header-{n}"), keylane::Bytes::new())));
    shelf.add(StoredLetter {
        id: "1".to_owned(),
        key: Some(long("k").into()),
        payload: long("p").into(),
        error: "e".repeat(5_000),
        headers,
        ..StoredLetter::default()
    });
    shelf.add(StoredLetter {
        id: "9999".to_owned(),
        headers: vec![("n".repeat(300), "v".repeat(300).into())],
        ..StoredLetter::default()
    });
    let served = served(&shelf);
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("{}#letters", served.url()));
    let says = |id: &str, part: &str| {
        browser.until(&format!(
            "document.getElementById({id:?}).textContent.includes({part:?})"
        ));
    };
    says("letter-rows", "k… 70,000 characters");
    says("letter-rows", "the first 256 of 70,000 bytes");
    // A filter that finds nothing among the first letters is not at the end.
    browser.run(
        "document.getElementById('letter-filter').value = 'nothing-has-this'; \
         document.getElementById('letter-form').requestSubmit()",
    );
    says("letters-none", "Looked at 2,0");
    says("letters-none", "go on with the next page");
    browser.click("#letters-next");
    browser.until("document.getElementById('letters-none').textContent == 'No letter to show.'");
    browser.open(&format!("{}#letter/dead/1", served.url()));
    says("letter-key", "k… 70,000 characters");
    says("letter-error", "e… 5,000 characters");
    says("letter-form-name", "text, the first 65,536 of 70,000 bytes");
    says("letter-headers", "n… 70,000 characters");
    says("letter-headers", "v… 70,000 characters");
    says("letter-headers", "7 more headers");
    browser.open(&format!("{}#letter/dead/9999", served.url()));
    says("letter-headers", "nnn");
    look(&browser, 400, "cut");
}
