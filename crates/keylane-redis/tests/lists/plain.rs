//! Producers that know only `LPUSH`, lists that never end, dead letters, and spools.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::IntakeSettings;
use keylane::source::{RawLetter, RawLetterSink, RawMessage};
use keylane::{OnExhausted, Retry};
use keylane_redis::{ErrorKind, ListBuilder, ListKey, ListQueue};
use keylane_spool::Spool;
use keylane_testkit::Lines;
use keylane_testkit::scenario::{boxed, by_key, give_up};
use testkit_servers::RedisKind;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::Level;

use crate::logs::Logs;
use crate::runtimes::{PUSHES, push_from_each, runtime};
use crate::support::{builder, new_name, own, shared};

/// A list of its own, and the settings of its queue.
struct List {
    server: Arc<testkit_servers::Redis>,
    name: String,
}

impl List {
    async fn new(what: &str) -> Self {
        Self {
            server: shared(RedisKind::Redis7).await,
            name: new_name(what),
        }
    }

    fn builder(&self) -> ListBuilder {
        builder(&self.server.url(), &self.name)
    }

    async fn push(&self, element: &str) {
        let pushed = self.server.execute(&["LPUSH", &self.name, element]).await;
        pushed.unwrap();
    }
}

/// Hands each message to the test.
fn watched(
    queue: &ListQueue,
) -> (
    keylane::consume::Intake,
    mpsc::UnboundedReceiver<(RawMessage, u64)>,
) {
    let (seen, see) = mpsc::unbounded_channel();
    let dispatcher = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |message: RawMessage| {
            let seen = seen.clone();
            async move {
                let token = ListQueue::token(&message).unwrap();
                let _ = seen.send((message, token));
                Ok(())
            }
        }))
        .unwrap();
    let intake = dispatcher.consume(queue.source()).unwrap();
    (intake, see)
}

async fn next<T>(see: &mut mpsc::UnboundedReceiver<T>) -> T {
    let seen = timeout(Duration::from_secs(30), see.recv()).await;
    seen.expect("it comes").expect("the handler lives")
}

#[tokio::test]
async fn plain_elements_have_the_key_that_the_rule_finds() {
    let cases = [
        (ListKey::none(), r#"{"user":"u-7"}"#, None),
        (
            ListKey::json("user"),
            r#"{"user":"u-7","n":1}"#,
            Some("u-7"),
        ),
        (ListKey::json("user"), r#"{"user":17}"#, Some("17")),
        (ListKey::json("user"), r#"{"user":""}"#, Some("")),
        (ListKey::json("user"), r#"{"account":"u-7"}"#, None),
        (ListKey::json("user"), r#"{"user":["u-7"]}"#, None),
        (ListKey::json("user"), "no json", None),
        (ListKey::before(b"::"), "u-7::pay::12", Some("u-7")),
        (ListKey::before(b"::"), "::pay", Some("")),
        (ListKey::before(b"%"), "100%", Some("100")),
        (ListKey::before(b"::"), "u-7:pay", None),
    ];
    for (rule, element, key) in cases {
        let list = List::new("keys").await;
        let queue = list.builder().key(rule).build().unwrap();
        list.push(element).await;
        let (intake, mut see) = watched(&queue);
        let (message, _) = next(&mut see).await;
        assert_eq!(message.payload, element, "as it was pushed");
        assert_eq!(message.key.as_deref(), key.map(str::as_bytes), "{element}");
        intake.stop().await;
        assert_eq!(queue.status().await.unwrap().keys, 0);
    }
}

/// What is logged of some elements, three of which have no key.
async fn warnings(rule: Option<ListKey>) -> Vec<String> {
    let list = List::new("keyless").await;
    let builder = list.builder();
    let queue = match rule {
        Some(rule) => builder.key(rule),
        None => builder,
    };
    let queue = queue.build().unwrap();
    let logs = Logs::record();
    for _ in 0..3 {
        list.push(r#"{"account":"u-7"}"#).await;
    }
    queue.push(&RawMessage::new("1").key("u-7")).await.unwrap();
    let (intake, mut see) = watched(&queue);
    for _ in 0..4 {
        next(&mut see).await;
    }
    intake.stop().await;
    logs.at(Level::WARN)
}

#[tokio::test]
async fn an_element_without_a_key_is_warned_of_once_unless_that_is_meant() {
    let said = warnings(None).await;
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].contains("set the place of the key"), "{said:#?}");
    let said = warnings(Some(ListKey::json("user"))).await;
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].contains("correct the rule"), "{said:#?}");
    assert_eq!(warnings(Some(ListKey::json("account"))).await, [""; 0]);
    assert_eq!(warnings(Some(ListKey::none())).await, [""; 0]);
}

#[tokio::test]
async fn plain_elements_come_in_their_order_beside_messages_with_headers() {
    let list = List::new("mixed").await;
    let queue = list.builder().key(ListKey::json("user")).build().unwrap();
    let (intake, mut see) = watched(&queue);
    list.push(r#"{"user":"a","n":1}"#).await;
    let mut second = RawMessage::new("2").key("a");
    second.id = Some("id-2".into());
    second
        .headers
        .push(("trace".to_owned(), Some("t-9".into())));
    queue.push(&second).await.unwrap();
    list.push(r#"{"user":"a","n":3}"#).await;
    let (first, token) = next(&mut see).await;
    assert_eq!(first.payload, r#"{"user":"a","n":1}"#);
    let (message, second_token) = next(&mut see).await;
    assert_eq!(message.id.as_deref(), Some(&b"id-2"[..]));
    assert_eq!(
        message.header("trace").map(|value| &**value),
        Some(&b"t-9"[..])
    );
    assert_eq!(next(&mut see).await.0.payload, r#"{"user":"a","n":3}"#);
    assert!(second_token > token, "tokens grow");
    intake.stop().await;
}

/// Returned elements are those that were pushed: other consumers of the list see no difference.
#[tokio::test]
async fn what_is_given_back_is_plain_again() {
    let list = List::new("plain").await;
    let queue = list.builder().key(ListKey::before(b":")).build().unwrap();
    for n in 0..3 {
        list.push(&format!("a:{n}")).await;
    }
    let (started, mut starts) = mpsc::unbounded_channel();
    let dispatcher = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |_: RawMessage| {
            let started = started.clone();
            async move {
                let _ = started.send(());
                std::future::pending::<()>().await;
                Ok(())
            }
        }))
        .unwrap();
    let settings = IntakeSettings::new().revoke_within(Duration::ZERO);
    let intake = dispatcher.consume_with(queue.source(), settings).unwrap();
    next(&mut starts).await;
    assert_eq!(queue.holders(10).await.unwrap().len(), 1);
    let report = intake.stop().within(Duration::ZERO).await;
    assert_eq!(report.given_back, 3, "{report}");
    let left = list
        .server
        .execute(&["LRANGE", &list.name, "0", "-1"])
        .await;
    assert_eq!(left.unwrap(), "a:2\na:1\na:0");
    let status = queue.status().await.unwrap();
    assert!(status.workers.is_empty() && status.keys == 0, "{status}");
}

/// Each round has the order of the first one, and failing elements leave it.
#[tokio::test]
async fn a_cyclic_list_never_ends() {
    let list = List::new("cyclic").await;
    let builder = list.builder().key(ListKey::before(b":"));
    let queue = builder.cyclic().dead_letters().build().unwrap();
    for key in ["a", "b", "bad", "c"] {
        list.push(&format!("{key}:1")).await;
    }
    let rounds: Arc<Mutex<HashMap<Bytes, u64>>> = Arc::default();
    let (seen, mut see) = mpsc::unbounded_channel();
    let handled = Arc::clone(&rounds);
    let dispatcher = by_key()
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(2))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(move |message: RawMessage| {
            if message.payload.starts_with(b"bad") {
                return std::future::ready(Err("it never works".into()));
            }
            *handled.lock().unwrap().entry(message.payload).or_default() += 1;
            let _ = seen.send(());
            std::future::ready(Ok(()))
        }))
        .unwrap();
    let intake = dispatcher.consume(queue.source()).unwrap();
    for _ in 0..30 {
        next(&mut see).await;
    }
    intake.stop().await;
    let rounds = rounds.lock().unwrap().clone();
    assert_eq!(rounds.len(), 3, "the one that fails has left");
    assert!(rounds.values().all(|times| *times >= 5), "{rounds:?}");
    let left = list
        .server
        .execute(&["LRANGE", &list.name, "0", "-1"])
        .await;
    let left = left.unwrap();
    let mut left: Vec<_> = left.lines().collect();
    left.sort_unstable();
    assert_eq!(left, ["a:1", "b:1", "c:1"], "they are as they were pushed");
    let letters = queue.letters(10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].payload, "bad:1");
}

#[tokio::test]
async fn a_letter_says_why_and_goes_back_as_it_was() {
    let list = List::new("letters").await;
    let builder = list.builder().key(ListKey::before(b":"));
    let queue = builder.dead_letters().build().unwrap();
    list.push("a:1").await;
    let mut message = RawMessage::new("2").key("b");
    message
        .headers
        .push(("trace".to_owned(), Some("t-9".into())));
    queue.push(&message).await.unwrap();
    let dispatcher = by_key()
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(3))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(|_: RawMessage| async {
            Err("no such account".into())
        }))
        .unwrap();
    let intake = dispatcher.consume(queue.source()).unwrap();
    let kept = async {
        while intake.stats().dead_lettered < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), kept).await.unwrap();
    let report = intake.stop().await;
    assert_eq!((report.received, report.dead_lettered), (2, 2));
    let mut letters = queue.letters(10).await.unwrap();
    letters.sort_by(|one, other| one.key.cmp(&other.key));
    let header = |at: usize, name: &str| letters[at].header(name).map(|value| value.to_vec());
    assert_eq!(letters[0].payload, "a:1");
    assert_eq!(header(0, "keylane.attempts").unwrap(), b"3");
    assert_eq!(header(0, "keylane.cause").unwrap(), b"failed");
    let error = String::from_utf8(header(0, "keylane.error").unwrap()).unwrap();
    assert!(error.contains("no such account"), "{error}");
    assert_eq!(header(1, "trace").unwrap(), b"t-9");
    let status = queue.status().await.unwrap();
    assert_eq!((status.waiting, status.keys, status.letters), (0, 0, 2));

    assert_eq!(queue.redrive(10).await.unwrap(), 2);
    assert_eq!(queue.letters(10).await.unwrap(), []);
    let (intake, mut see) = watched(&queue);
    let mut back = [next(&mut see).await.0, next(&mut see).await.0];
    back.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(back[0].payload, "a:1");
    assert_eq!(back[1].headers, message.headers);
    assert!(back.iter().all(|message| message.attempt == 1));
    intake.stop().await;
}

#[tokio::test]
async fn a_queue_takes_the_letters_of_others() {
    let list = List::new("sink").await;
    let queue = list.builder().build().unwrap();
    let raw = RawMessage::new("no number").key("a");
    let letter = RawLetter::new(raw, "not a number", "elsewhere");
    queue.accept(&letter).await.unwrap();
    let letters = queue.letters(10).await.unwrap();
    assert_eq!(letters[0].payload, "no number");
    assert_eq!(letters[0].key.as_deref(), Some(&b"a"[..]));
    let cause = letters[0].header("keylane.cause").unwrap();
    assert_eq!(&**cause, b"undecodable");
}

#[tokio::test]
async fn a_spool_delivers_to_a_list() {
    let list = List::new("spool").await;
    let queue = list.builder().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::builder(queue.clone())
        .dir(folder.path())
        .open()
        .await
        .unwrap();
    for n in 0..10 {
        spool
            .push(format!("key-{}", n % 2), format!("{n}"))
            .await
            .unwrap();
    }
    let (intake, mut see) = watched(&queue);
    let mut handled: HashMap<Bytes, Vec<u32>> = HashMap::new();
    for _ in 0..10 {
        let (message, _) = next(&mut see).await;
        assert_eq!(message.id.as_ref().map(Bytes::len), Some(24));
        let n = std::str::from_utf8(&message.payload)
            .unwrap()
            .parse()
            .unwrap();
        handled.entry(message.key.unwrap()).or_default().push(n);
    }
    assert_eq!(handled[&b"key-0"[..]], [0, 2, 4, 6, 8]);
    assert_eq!(handled[&b"key-1"[..]], [1, 3, 5, 7, 9]);
    intake.stop().await;
}

#[tokio::test]
async fn a_list_of_something_else_is_a_typed_error() {
    let list = List::new("wrong").await;
    list.server
        .execute(&["SET", &list.name, "text"])
        .await
        .unwrap();
    let queue = list.builder().build().unwrap();
    let error = queue.push(&RawMessage::new("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(!error.is_retryable());
}

#[test]
fn a_message_is_pushed_once_from_each_runtime() {
    let first = runtime();
    let server = first.block_on(own(RedisKind::Valkey9));
    let queue = builder(&server.url(), "runtimes").build().unwrap();
    push_from_each(async |message| queue.push(&message).await);
    let status = first.block_on(queue.status()).unwrap();
    assert_eq!(status.waiting, PUSHES);
}

#[tokio::test]
async fn the_lines_about_an_element_name_it() {
    let list = List::new("lines").await;
    let queue = list.builder().build().unwrap();
    let mut message = RawMessage::new("250").key("user-7");
    message.id = Some("order-4711".into());
    queue.push(&message).await.unwrap();
    let lines = Lines::new();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.writer());
    // On one thread, so that all of it is logged to these lines.
    let _on = keylane_testkit::set_subscriber(subscriber.finish());
    give_up(queue.source(), 1).await;
    lines.assert_named(&format!("source=list {} position=token ", list.name));
    lines.assert_named(" id=order-4711 attempt");
}
