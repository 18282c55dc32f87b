//! Keys, payloads, ids, headers, errors and names of any kind.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_inbox::NewMessage;
use keylane_inbox::error::AcceptError;
use keylane_sql::{Settings, SourceSettings, SqlInbox, Tables};
use keylane_testkit::scenario::{boxed, by_key};
use tokio::time::{Instant, sleep};

use crate::support::{Kind, Place};

const PATIENCE: Duration = Duration::from_secs(120);

/// What a careless program would stumble over.
fn hostile() -> Vec<Vec<u8>> {
    let mut bytes: Vec<Vec<u8>> = [
        &b""[..],
        b"\0",
        b"a\0b",
        b"\\x00",
        b"\\",
        b"'",
        b"\"",
        b"`",
        b"'; drop table keylane_messages; --",
        b"$1 {messages} %s ? :name",
        b"\xff\xfe\xfd",
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"NULL",
        b"null",
        b" ",
        b"\r\n\t",
    ]
    .map(<[u8]>::to_vec)
    .into();
    // As long as a key may be.
    bytes.push(vec![0xa5; 1_024]);
    bytes.push((0..=255).collect());
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_all_bytes() {
    all_bytes(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_keeps_all_bytes() {
    all_bytes(Kind::MariaDb).await;
}

/// What comes out is what went in: as a message of a source, and as a dead letter.
async fn all_bytes(kind: Kind) {
    let place = Place::new(kind).await;
    let inbox = place.inbox().await;
    let mut sent = Vec::new();
    for (n, bytes) in hostile().into_iter().enumerate() {
        let mut id = bytes.clone();
        id.resize(256, n as u8);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let message = NewMessage::new(bytes.clone(), bytes.clone())
            .id(id)
            .header(text, bytes.clone())
            .header("o'clock \"`\\\0", bytes)
            .header("", "");
        sent.push(message);
    }
    // Larger than what is kept in a row, and 64 KiB but one byte.
    for size in [(64 << 10) - 1, 1 << 20] {
        sent.push(NewMessage::new("large", vec![0xff; size]).id(size.to_string()));
    }
    let accepted = inbox.inbox().accept_many(sent.clone()).await.unwrap();
    assert!(accepted.iter().all(|accepted| !accepted.is_duplicate()));
    let again = inbox.inbox().accept_many(sent.clone()).await.unwrap();
    assert!(again.iter().all(|accepted| accepted.is_duplicate()));
    let handled = consume(&inbox, sent.len(), false).await;
    for message in &sent {
        let same = |raw: &&RawMessage| {
            raw.key.as_ref() == Some(&message.key) && raw.payload == message.payload
        };
        let raw = handled.iter().find(same).unwrap();
        let id = message.id.as_ref().unwrap().as_bytes();
        assert_eq!(raw.id.as_deref(), Some(id));
        let headers = raw.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_deref()));
        let given = message.headers.iter();
        let given = given.map(|header| (header.name.as_str(), Some(&header.value[..])));
        assert_eq!(Vec::from_iter(headers), Vec::from_iter(given));
    }
    assert_eq!(inbox.inbox().stats().await.unwrap().waiting, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_letters_with_any_error() {
    letters(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_keeps_letters_with_any_error() {
    letters(Kind::MariaDb).await;
}

async fn letters(kind: Kind) {
    let place = Place::new(kind).await;
    let inbox = place.inbox().await;
    let sent = hostile();
    let messages = sent
        .iter()
        .map(|bytes| NewMessage::new(bytes.clone(), bytes.clone()));
    inbox.inbox().accept_many(messages).await.unwrap();
    consume(&inbox, sent.len(), true).await;
    let until = Instant::now() + PATIENCE;
    let letters = loop {
        let letters = inbox.inbox().letters().list(0, 100).await.unwrap();
        if letters.len() == sent.len() {
            break letters;
        }
        assert!(Instant::now() < until, "{} letters", letters.len());
        sleep(Duration::from_millis(20)).await;
    };
    for letter in &letters {
        let bytes = &letter.message.payload;
        assert!(sent.iter().any(|sent| sent == bytes) && letter.message.key == *bytes);
        let text = String::from_utf8_lossy(bytes).into_owned();
        // It is shown escaped, and cut.
        let is_odd = text.len() > 100 || text.contains(char::is_control);
        let is_shown = is_odd || letter.error.contains(&text);
        assert!(
            is_shown && letter.error.contains("this"),
            "{:?}",
            letter.error
        );
    }
    // And they come back as they were.
    for letter in &letters {
        let redriven = inbox
            .inbox()
            .letters()
            .redrive([letter.message.sequence])
            .await;
        assert_eq!(redriven.unwrap().len(), 1, "{letter:?}");
    }
    let handled = consume(&inbox, sent.len(), false).await;
    assert_eq!(handled.len(), sent.len());
}

/// An error that shows itself as it is.
struct Text(String);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Error for Text {}

/// Consumes until so many messages are handled, and says which.
async fn consume(inbox: &SqlInbox, count: usize, fails: bool) -> Vec<RawMessage> {
    let handled = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let handled = Arc::clone(&handled);
        move |message: RawMessage| {
            let handled = Arc::clone(&handled);
            async move {
                let text = String::from_utf8_lossy(&message.payload).into_owned();
                handled.lock().unwrap().push(message);
                if fails {
                    Err(Text(format!("this\0: {text}")).into())
                } else {
                    Ok(())
                }
            }
        }
    };
    let dispatcher = by_key()
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(1))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(handler))
        .unwrap();
    let settings = SourceSettings::new()
        .lease(Duration::from_secs(5))
        .name("it's \"one\" `of` \\ them");
    let intake = dispatcher.consume(inbox.source_with(settings)).unwrap();
    let until = Instant::now() + PATIENCE;
    while handled.lock().unwrap().len() < count {
        let stats = intake.stats();
        assert!(Instant::now() < until, "{stats:?}");
        sleep(Duration::from_millis(10)).await;
    }
    intake.stop().await;
    handled.lock().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_takes_what_is_too_large_for_no_other() {
    limits(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_takes_what_is_too_large_for_no_other() {
    limits(Kind::MariaDb).await;
}

/// What is beyond a limit is refused before the database hears of it, and all of its call with it.
async fn limits(kind: Kind) {
    let place = Place::new(kind).await;
    let inbox = place.inbox().await.inbox();
    let fine = || NewMessage::new("key", "fine");
    let refused = [
        fine().id(vec![0; 257]),
        fine().id(""),
        NewMessage::new(vec![0; (64 << 10) + 1], "key"),
        (0..300).fold(fine(), |message, n| message.header(n.to_string(), "")),
        fine().header("large", vec![0; (1 << 20) + 1]),
    ];
    for message in refused {
        let answer = inbox.accept_many([fine(), message, fine()]).await;
        assert!(matches!(answer, Err(AcceptError::Limit(..))), "{answer:?}");
    }
    assert_eq!(inbox.stats().await.unwrap().waiting, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_has_tables_of_odd_names() {
    odd_names(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_has_tables_of_odd_names() {
    odd_names(Kind::MariaDb).await;
}

/// Names that are words of the language, of both cases, as long as they may be, and in another
/// schema; and none of them sees what is in another one.
async fn odd_names(kind: Kind) {
    let place = Place::empty(kind).await;
    let (schema, other) = ("Select", "a".repeat(63));
    let quoted = |name: &str| match kind {
        Kind::Postgres => format!("\"{name}\""),
        Kind::MariaDb => format!("`{name}`"),
    };
    // Databases are schemas in MariaDB, and others may have them.
    for name in [schema, &other] {
        place
            .execute(format!("create schema {}", quoted(name)))
            .await;
    }
    let prefixes = ["_", "Order", "order", "SELECT_", "k9__", &"x".repeat(47)];
    let mut tables: Vec<Tables> = prefixes
        .iter()
        .map(|prefix| Tables::new().prefix(*prefix).unwrap())
        .collect();
    tables.push(Tables::new());
    tables.push(Tables::new().schema(schema).unwrap());
    tables.push(
        Tables::new()
            .prefix("Order")
            .unwrap()
            .schema(schema)
            .unwrap(),
    );
    tables.push(
        Tables::new()
            .prefix("x".repeat(47))
            .unwrap()
            .schema(other)
            .unwrap(),
    );
    let mut inboxes = Vec::new();
    for tables in &tables {
        place.database.migrate(tables).await.unwrap();
        let inbox = SqlInbox::open(&place.database, tables, Settings::new()).await;
        inboxes.push(inbox.unwrap());
    }
    for (n, inbox) in inboxes.iter().enumerate() {
        // The same id and version everywhere, and as many messages as its place.
        for m in 0..=n as u64 {
            let message = NewMessage::new("key", n.to_string())
                .id(format!("id {m}"))
                .version(m);
            let accepted = inbox.inbox().accept_message(message).await.unwrap();
            assert!(!accepted.is_duplicate(), "{:?}", tables[n]);
        }
    }
    for (n, inbox) in inboxes.iter().enumerate() {
        assert_eq!(inbox.inbox().stats().await.unwrap().waiting, n as u64 + 1);
        let handled = consume(inbox, n + 1, false).await;
        let own = n.to_string();
        assert!(
            handled.iter().all(|raw| raw.payload == own),
            "{:?}",
            tables[n]
        );
        assert_eq!(handled.len(), n + 1);
        assert_eq!(inbox.inbox().stats().await.unwrap().waiting, 0);
    }
}
