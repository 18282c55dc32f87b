//! Acks, deletion, trimming, and dead letters.

use std::time::Duration;

use keylane::source::{LetterCause, Source as _, SourceLetter};
use keylane_redis::StreamTrim;
use redis::Value;
use testkit_servers::RedisKind;

use crate::support::{Client, Driven, LEASE, builder, new_name, payloads, shared, texts, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_acks_in_one_batch_are_taken() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("many"));
    let mut steps = redis::pipe();
    for number in 0..12_000 {
        steps
            .cmd("XADD")
            .arg(&name)
            .arg("*")
            .arg("payload")
            .arg(number);
    }
    client.steps(&steps).await;
    let source = builder(&server.url(), "g")
        .stream(name.clone())
        .build()
        .unwrap();
    let mut source = Driven::open(source).await;
    let handed = source.receive(12_000).await;
    source.ack(&handed).await;
    assert_eq!(client.pending(&name, "g").await, []);
}

/// Acked entries are deleted: when all groups have acked them if the server supports it, and
/// otherwise if there is no other group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acked_is_deleted() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("deletes"));
        client.add_all(&name, 0..6).await;
        let source = |group: &str| {
            let builder = builder(&server.url(), group).stream(name.clone());
            builder.delete_acked().build().unwrap()
        };
        let length = async || client.run::<u64>(&["XLEN", &name]).await;
        let mut one = Driven::open(source("one")).await;
        let handed = one.receive(6).await;
        one.ack(&handed[..2]).await;
        assert_eq!(length().await, 4, "{kind}: alone");
        let mut other = Driven::open(source("other")).await;
        let theirs = other.receive(4).await;
        one.ack(&handed[2..]).await;
        assert_eq!(
            length().await,
            4,
            "{kind}: another group has not acked them"
        );
        assert_eq!(payloads(&theirs), texts(2..6));
        other.ack(&theirs).await;
        let left = match kind {
            RedisKind::Redis8 => 0,
            _ => 4,
        };
        assert_eq!(length().await, left, "{kind}: all groups have acked them");
        assert_eq!(client.pending(&name, "one").await, []);
        assert_eq!(client.pending(&name, "other").await, []);
    }
}

/// Trimming deletes no entry that a group has not read, or has not acked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trimming_keeps_what_any_group_needs() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("trims"));
        client.add_all(&name, 0..10).await;
        let _: Value = client.run(&["XGROUP", "CREATE", &name, "lags", "0"]).await;
        let read = ["XREADGROUP", "GROUP", "lags", "c", "COUNT", "3", "STREAMS"];
        let read = [&read[..], &[&name, ">"]].concat();
        let _: Value = client.run(&read).await;
        let source = builder(&server.url(), "g").stream(name.clone());
        let source = source
            .trim(StreamTrim::Settled)
            .trim_every(Duration::from_millis(20))
            .lease(60 * LEASE);
        let mut source = Driven::open(source.build().unwrap()).await;
        let watch = source.0.watch();
        let handed = source.receive(10).await;
        let ids: Vec<String> = handed
            .iter()
            .map(|one| one.position.id().to_string())
            .collect();
        let length = async || client.run::<u64>(&["XLEN", &name]).await;
        let a_while = Duration::from_millis(200);
        source.ack(&handed[..6]).await;
        tokio::time::sleep(a_while).await;
        assert_eq!(
            length().await,
            10,
            "{kind}: the first one is pending in the other group"
        );

        let _: u64 = client
            .run(&["XACK", &name, "lags", &ids[0], &ids[1], &ids[2]])
            .await;
        until("what all have acked is cut off", async || {
            length().await == 7
        })
        .await;
        tokio::time::sleep(a_while).await;
        assert_eq!(
            length().await,
            7,
            "{kind}: the other group has not had the rest"
        );

        let _: Value = client.run(&["XGROUP", "SETID", &name, "lags", "$"]).await;
        until("up to what is pending here", async || length().await == 4).await;
        tokio::time::sleep(a_while).await;
        assert_eq!(length().await, 4, "{kind}: they are pending here");
        let mut again = Vec::new();
        for one in &handed[6..] {
            again.push(one.position);
        }
        let mut into = keylane::source::Deliveries::new(4, tokio::time::Instant::now());
        source.0.reread(&again, &mut into).await.unwrap();
        assert_eq!(into.take().len(), 4);

        source.ack(&handed[6..]).await;
        until("everything is cut off", async || length().await == 0).await;
        // The server trims before the source receives the number.
        until("all are counted", async || watch.counts().trimmed == 10).await;
        client.add_all(&name, 10..11).await;
        assert_eq!(payloads(&source.receive(1).await), texts([10]));
    }
}

/// The letter has the fields of the entry, and is written once however often the call is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_says_why_and_is_written_once() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("letters"));
        let dead = format!("{name}.dead");
        let fields = [
            "XADD",
            &name,
            "7-1",
            "key",
            "a",
            "keylane.error",
            "old",
            "trace",
            "t",
        ];
        let _: String = client.run(&fields).await;
        let source = || {
            let builder = builder(&server.url(), "g").stream(name.clone());
            builder.dead_letters(dead.clone()).build().unwrap()
        };
        let mut first = Driven::open(source()).await;
        let handed = first.receive(1).await;
        let letter =
            |position| SourceLetter::new(position, 3, LetterCause::Failed, "no funds".to_owned());
        first
            .0
            .dead_letter(letter(handed[0].position))
            .await
            .unwrap();
        first
            .0
            .dead_letter(letter(handed[0].position))
            .await
            .unwrap();
        // The process ends before the entry settles.
        drop(first);
        let mut second = Driven::open(source()).await;
        assert_eq!(
            second.receive_for(Duration::from_millis(300)).await.len(),
            0
        );
        let letters: Vec<(String, Vec<(String, String)>)> =
            client.run(&["XRANGE", &dead, "-", "+"]).await;
        assert_eq!(letters.len(), 1, "{kind}");
        let expected = [
            ("key", "a"),
            ("trace", "t"),
            ("keylane.stream", &name),
            ("keylane.entry", "7-1"),
            ("keylane.time", "7"),
            ("keylane.group", "g"),
            ("keylane.attempts", "3"),
            ("keylane.cause", "failed"),
            ("keylane.error", "no funds"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(letters[0].1, expected);
    }
}

/// An entry with more fields than a script can pass on gets its letter in two steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_of_many_fields_has_a_letter() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("wide"));
    let dead = format!("{name}.dead");
    let mut add = redis::cmd("XADD");
    add.arg(&name).arg("*");
    for number in 0..5_000 {
        add.arg(format!("field-{number}")).arg(number);
    }
    let _: String = client.ask(&add).await;
    let source = builder(&server.url(), "g")
        .stream(name.clone())
        .dead_letters(dead.clone());
    let mut source = Driven::open(source.build().unwrap()).await;
    let handed = source.receive(1).await;
    assert_eq!(handed[0].message.headers.len(), 5_000);
    let why = SourceLetter::new(handed[0].position, 1, LetterCause::Failed, "no".to_owned());
    source.0.dead_letter(why).await.unwrap();
    source.ack(&handed).await;
    assert_eq!(client.run::<u64>(&["XLEN", &dead]).await, 1);
    assert_eq!(client.left(&name, "g").await, 0);
}

/// Entries whose bodies were deleted while they were pending are acked, and the others come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_was_deleted_holds_nothing_up() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("deleted"));
        let ids = client.add_all(&name, 0..6).await;
        let source = || {
            builder(&server.url(), "g")
                .stream(name.clone())
                .build()
                .unwrap()
        };
        let mut first = Driven::open(source()).await;
        let handed = first.receive(4).await;
        let _: u64 = client.run(&["XDEL", &name, &ids[1], &ids[5]]).await;
        let mut into = keylane::source::Deliveries::new(4, tokio::time::Instant::now());
        let positions: Vec<_> = handed.iter().map(|one| one.position).collect();
        first.0.reread(&positions, &mut into).await.unwrap();
        assert_eq!(payloads(&into.take()), texts([0, 2, 3]));
        // It is here already, so it can be handled.
        drop(first);
        let mut second = Driven::open(source()).await;
        let watch = second.0.watch();
        let handed = second.receive(4).await;
        assert_eq!(payloads(&handed), texts([0, 2, 3, 4]), "{kind}");
        assert!(watch.counts().bodiless >= 1, "{kind}: {:?}", watch.counts());
        second.ack(&handed).await;
        assert_eq!(client.pending(&name, "g").await, []);
    }
}
