//! The dead letters of a list and of a stream, on a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keylane::source::RawMessage;
use keylane::{Bytes, Dispatcher, OnExhausted};
use keylane_console::Action;
use keylane_redis::{ListLetters, ListQueue, Redis, StreamLetters, StreamSink, StreamSource};
use serde_json::{Value, json};
use testkit_browser::until;
use testkit_servers::RedisKind;
use tokio::runtime::Runtime;

use crate::served::Served;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    InList,
    InStream,
}

fn act(served: &Served, action: &str, name: &str, which: Value) -> Value {
    let mut body = json!({ "name": "dead", "action": action });
    body[name] = which;
    served.post("letters/act", &body).json()
}

pub(crate) fn listed(served: &Served) -> Vec<Value> {
    let found = served.get("letters?name=dead").json();
    found["letters"].as_array().unwrap().clone()
}

fn until_listed(served: &Served, count: usize) -> Vec<Value> {
    let mut letters = Vec::new();
    until("they are letters", || {
        letters = listed(served);
        letters.len() == count
    });
    letters
}

fn job(served: &Served) -> Value {
    let mut stream = served.stream("feed", None);
    let data = stream.until(|data| data["body"]["letters"][0]["job"]["state"] == "done");
    data["body"]["letters"][0]["job"].clone()
}

/// Two orders become letters. One is purged, the other one is redriven, once in vain.
fn letters_are_shown_purged_and_redriven(kept: Kept) {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(testkit_servers::Redis::start(RedisKind::Redis7));
    let server = server.unwrap();
    let redis = Redis::at(&server.url()).unwrap();
    let fails = Arc::new(AtomicBool::new(true));
    let entered = runtime.enter();
    let orders = Dispatcher::builder(|order: &RawMessage| order.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn({
            let fails = Arc::clone(&fails);
            move |_: RawMessage| {
                let fails = fails.load(Ordering::Relaxed);
                async move { if fails { Err("declined") } else { Ok(()) } }
            }
        })
        .unwrap();
    let queue = ListQueue::builder(&redis, "orders").dead_letters();
    let queue = queue.build().unwrap();
    let intake = match kept {
        Kept::InList => orders.consume(queue.source()).unwrap(),
        Kept::InStream => {
            let source = StreamSource::builder(&redis, "billing").stream("orders");
            let source = source.dead_letters("orders.dead").build().unwrap();
            orders.consume(source).unwrap()
        }
    };
    drop(entered);
    let messages = ["ann", "bob"].map(|key| {
        let mut message = RawMessage::new("{\"cents\":100}").key(key);
        let trace = ("trace".to_owned(), Some("<i>7</i>".into()));
        message.headers.push(trace);
        message
    });
    let pushed = match kept {
        Kept::InList => runtime.block_on(queue.push_all(&messages)),
        Kept::InStream => {
            let sink = StreamSink::new(&redis, "orders").unwrap();
            runtime.block_on(sink.push_all(&messages))
        }
    };
    pushed.unwrap();
    let served = Served::<String>::start(|console| {
        let console = console.allow(Action::ALL);
        match kept {
            Kept::InList => console.letters("dead", ListLetters::new(&queue)),
            Kept::InStream => {
                let letters = StreamLetters::new(&redis, "orders.dead");
                console.letters("dead", letters.unwrap())
            }
        }
    });

    let letters = until_listed(&served, 2);
    are_purged_and_redriven(&letters, &served, &orders, &fails);
    runtime.block_on(async {
        drop(intake);
        orders.drain().await;
    });
}

type Orders = Dispatcher<Option<Bytes>, RawMessage, (), &'static str>;

/// These are the letters of `ann` and `bob`, and their handler fails.
pub(crate) fn are_purged_and_redriven(
    letters: &[Value],
    served: &Served,
    orders: &Orders,
    fails: &AtomicBool,
) {
    for letter in letters {
        let id = letter["id"].as_str().unwrap();
        let one = served.get(&format!("letter?name=dead&id={id}")).json();
        assert_eq!(one["headers"], json!([["trace", "<i>7</i>"]]));
        assert_eq!(one["payload"]["shown"], "{\"cents\":100}");
        assert_eq!(
            (&one["cause"], &one["attempts"]),
            (&json!("failed"), &json!(1))
        );
        assert!(one["error"].as_str().unwrap().contains("declined"));
        assert!(one["at_ms"].as_u64().unwrap() > 1_700_000_000_000);
    }
    let of = |key: &str| {
        let letter = letters.iter().find(|letter| letter["key"] == key);
        letter.unwrap()["id"].clone()
    };
    let wrong = served.get("letter?name=dead&id=17-x");
    let why = wrong.json()["why"].as_str().unwrap().to_owned();
    assert!(
        why.starts_with("\"17-x\" is not the id of a letter here"),
        "{why}"
    );
    assert_eq!(wrong.refusal(), (400, "bad_request".to_owned()));
    let purged = act(served, "purge_letters", "ids", json!([of("ann")]));
    assert_eq!(purged, json!({ "letters": 1 }));
    let again = act(served, "redrive_letters", "ids", json!([of("ann")]));
    assert_eq!(again, json!({ "letters": 0 }));

    // It fails again: another letter, which this job does not take.
    act(served, "redrive_letters", "filter", json!("bob"));
    assert_eq!(job(served)["done"], 1);
    until("it is a letter again", || orders.stats().dead_lettered == 3);
    let letters = until_listed(served, 1);
    assert_ne!(letters[0]["id"], of("bob"));
    fails.store(false, Ordering::Relaxed);
    let redriven = act(served, "redrive_letters", "ids", json!([letters[0]["id"]]));
    assert_eq!(redriven, json!({ "letters": 1 }));
    until("it is handled", || orders.stats().done == 1);
    assert!(listed(served).is_empty());
}

#[test]
fn the_letters_of_a_list_are_shown_purged_and_redriven() {
    letters_are_shown_purged_and_redriven(Kept::InList);
}

#[test]
fn the_letters_of_a_stream_are_shown_purged_and_redriven() {
    letters_are_shown_purged_and_redriven(Kept::InStream);
}
