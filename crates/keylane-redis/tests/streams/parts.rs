//! One stream of a source fails: the others go on, and the stats show the failure as long as it
//! lasts.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keylane::consume::{FailedPart, Intake, IntakeSettings, IntakeState};
use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_redis::{StreamSource, StreamTrim};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{boxed, by_key};
use redis::Value;
use testkit_servers::RedisKind;

use crate::support::{Client, builder, new_name, shared, until};

pub(crate) struct Consumed {
    handled: Arc<Mutex<Vec<String>>>,
    pub(crate) intake: Intake,
    _consumer: Dispatcher<bytes::Bytes, RawMessage, (), BoxError>,
}

/// Payloads that begin with `slow` wait at the gate before their handlers end.
pub(crate) fn consume_behind(source: StreamSource, gate: &Gate) -> Consumed {
    let handled = Arc::<Mutex<Vec<String>>>::default();
    let (theirs, gate) = (Arc::clone(&handled), gate.clone());
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |raw: RawMessage| {
            let payload = String::from_utf8(raw.payload.to_vec()).unwrap();
            let (theirs, gate) = (Arc::clone(&theirs), gate.clone());
            async move {
                if payload.starts_with("slow") {
                    gate.pass().await;
                }
                theirs.lock().unwrap().push(payload);
                Ok(())
            }
        }))
        .unwrap();
    let settings = IntakeSettings::new().longest_pause(Duration::from_millis(500));
    let intake = consumer.consume_with(source, settings).unwrap();
    Consumed {
        handled,
        intake,
        _consumer: consumer,
    }
}

pub(crate) fn consume(source: StreamSource) -> Consumed {
    consume_behind(source, &Gate::new())
}

impl Consumed {
    /// The numbers of the entries of a stream, in the order in which they were handled.
    pub(crate) fn of(&self, stream: &str) -> Vec<u64> {
        let handled = self.handled.lock().unwrap();
        let prefix = format!("{stream}/");
        let numbers = handled
            .iter()
            .filter_map(|payload| payload.strip_prefix(&prefix));
        numbers.map(|number| number.parse().unwrap()).collect()
    }

    pub(crate) async fn handles(&self, stream: &str, numbers: std::ops::Range<u64>) {
        let all: Vec<u64> = numbers.collect();
        until(&format!("{stream} is handled"), async || {
            self.of(stream).len() >= all.len()
        })
        .await;
        assert_eq!(self.of(stream), all, "{stream}: once, and in order");
    }

    pub(crate) fn failed(&self) -> Vec<FailedPart> {
        self.intake.stats().failed_parts
    }

    /// Waits until this stream has failed a few times, and it alone.
    pub(crate) async fn has_failed(&self, stream: &str) -> FailedPart {
        until(&format!("{stream} has failed"), async || {
            self.failed().iter().any(|part| part.times >= 3)
        })
        .await;
        let failed = self.failed();
        assert_eq!(failed.len(), 1, "{failed:?}");
        let part = failed.into_iter().next().unwrap();
        assert_eq!(part.part, stream);
        assert!(part.last > part.since, "{part:?}");
        part
    }

    pub(crate) async fn recovers(&self) {
        until("nothing fails any more", async || self.failed().is_empty()).await;
        let stats = self.intake.stats();
        assert_eq!(stats.state, IntakeState::Running);
    }
}

/// Adds entries of one key.
pub(crate) async fn add(client: &Client, stream: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        client
            .add(stream, stream, &format!("{stream}/{number}"))
            .await;
    }
}

/// Three streams: the second one is to fail.
pub(crate) fn names() -> [String; 3] {
    ["first", "broken", "third"].map(new_name)
}

pub(crate) fn source(url: &str, names: &[String; 3]) -> StreamSource {
    let builder = builder(url, "g");
    let builder = names.iter().fold(builder, |builder, name| {
        builder.stream(bytes::Bytes::from(name.clone()))
    });
    builder.build().unwrap()
}

pub(crate) async fn acked(client: &Client, names: &[String]) {
    for name in names {
        until("all are acked", async || client.left(name, "g").await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_the_wrong_type_fails_alone() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, names) = (Client::to(&server).await, names());
        let [first, broken, third] = &names;
        client.run::<()>(&["SET", broken, "no stream"]).await;
        let consumed = consume(source(&server.url(), &names));
        add(&client, first, 0..20).await;
        add(&client, third, 0..20).await;
        consumed.handles(first, 0..20).await;
        consumed.handles(third, 0..20).await;
        let part = consumed.has_failed(broken).await;
        assert!(part.why.contains("WRONGTYPE"), "{kind}: {part:?}");
        let named = format!("`{broken}` is a string: remove");
        assert!(part.why.contains(&named), "{kind}: {part:?}");
        add(&client, first, 20..30).await;
        consumed.handles(first, 0..30).await;

        client.run::<()>(&["DEL", broken]).await;
        add(&client, broken, 0..10).await;
        consumed.handles(broken, 0..10).await;
        consumed.recovers().await;

        // While it is consumed; then it gets its old type again.
        acked(&client, &names).await;
        let kept = format!("{broken}-kept");
        client.run::<()>(&["RENAME", broken, &kept]).await;
        client.run::<()>(&["SET", broken, "no stream"]).await;
        consumed.has_failed(broken).await;
        add(&client, first, 30..40).await;
        add(&client, third, 20..40).await;
        consumed.handles(first, 0..40).await;
        consumed.handles(third, 0..40).await;
        client.run::<()>(&["RENAME", &kept, broken]).await;
        add(&client, broken, 10..20).await;
        consumed.handles(broken, 0..20).await;
        consumed.recovers().await;
        acked(&client, &names).await;
        let report = consumed.intake.stop().await;
        assert_eq!((report.restarts, report.acked), (0, 100), "{kind}");
    }
}

/// Creates a user of the server with all rights on these keys.
pub(crate) async fn allow(client: &Client, user: &str, keys: &[&str]) {
    let patterns = keys.iter().map(|key| format!("~*{key}*"));
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg(user);
    command.arg(&["on", ">secret", "+@all", "resetkeys", "~*keylane-streams*"]);
    command.arg(patterns.collect::<Vec<_>>());
    client.ask::<()>(&command).await;
}

pub(crate) fn url(server: &testkit_servers::Redis, user: &str) -> String {
    server
        .url()
        .replacen("redis://", &format!("redis://{user}:secret@"), 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_rights_fails_alone() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, names, user) = (Client::to(&server).await, names(), new_name("user"));
        let [first, broken, third] = &names;
        allow(&client, &user, &[first, third]).await;
        let consumed = consume(source(&url(&server, &user), &names));
        for name in &names {
            add(&client, name, 0..20).await;
        }
        consumed.handles(first, 0..20).await;
        consumed.handles(third, 0..20).await;
        let part = consumed.has_failed(broken).await;
        assert!(part.why.contains("refuses the user"), "{kind}: {part:?}");
        allow(&client, &user, &[first, broken, third]).await;
        consumed.handles(broken, 0..20).await;
        consumed.recovers().await;
        acked(&client, &names).await;

        allow(&client, &user, &[first, third]).await;
        let part = consumed.has_failed(broken).await;
        assert!(part.why.contains("refuses the user"), "{kind}: {part:?}");
        for name in &names {
            add(&client, name, 20..40).await;
        }
        consumed.handles(first, 0..40).await;
        consumed.handles(third, 0..40).await;
        allow(&client, &user, &[first, broken, third]).await;
        consumed.handles(broken, 0..40).await;
        consumed.recovers().await;
        acked(&client, &names).await;
        let report = consumed.intake.stop().await;
        assert_eq!((report.restarts, report.acked), (0, 120), "{kind}");
    }
}

/// The key of the members is beside it, and cannot be read either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_stream_fails_alone_as_well() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, names, user) = (Client::to(&server).await, names(), new_name("user"));
        let [first, second, third] = &names;
        allow(&client, &user, &[second, third]).await;
        let consumed = consume(source(&url(&server, &user), &names));
        for name in &names {
            add(&client, name, 0..20).await;
        }
        consumed.handles(second, 0..20).await;
        consumed.handles(third, 0..20).await;
        until("it is said", async || {
            let failed = consumed.failed();
            let failed: Vec<_> = failed.iter().map(|part| &part.part[..]).collect();
            failed == [&first[..], "the members of g"]
        })
        .await;
        allow(&client, &user, &[first, second, third]).await;
        consumed.handles(first, 0..20).await;
        consumed.recovers().await;
        acked(&client, &names).await;
        let report = consumed.intake.stop().await;
        assert_eq!((report.restarts, report.acked), (0, 60), "{kind}");
    }
}

/// Entries in flight cannot be acked: they come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_under_way_comes_again() {
    for is_refused in [false, true] {
        let server = shared(RedisKind::Redis7).await;
        let (client, names, user) = (Client::to(&server).await, names(), new_name("user"));
        let [first, broken, third] = &names;
        allow(&client, &user, &[first, broken, third]).await;
        let gate = Gate::new();
        let consumed = consume_behind(source(&url(&server, &user), &names), &gate);
        client.add(broken, "slow", "slow").await;
        add(&client, broken, 0..5).await;
        consumed.handles(broken, 0..5).await;
        until("it is under way", async || gate.waiting() == 1).await;
        until("the others are acked", async || {
            client.left(broken, "g").await == 1
        })
        .await;
        let kept = format!("{broken}-kept");
        if is_refused {
            allow(&client, &user, &[first, third]).await;
        } else {
            let mut steps = redis::pipe();
            steps.atomic().cmd("RENAME").arg(broken).arg(&kept);
            steps.cmd("SET").arg(broken).arg("no stream");
            client.steps(&steps).await;
        }
        gate.open();
        // Once, by the ack that came too late, and not repeatedly.
        until("the ack is refused", async || {
            consumed.intake.stats().restarts == 1
        })
        .await;
        add(&client, first, 0..20).await;
        add(&client, third, 0..20).await;
        consumed.has_failed(broken).await;
        consumed.handles(first, 0..20).await;
        consumed.handles(third, 0..20).await;
        if is_refused {
            allow(&client, &user, &[first, broken, third]).await;
        } else {
            client.run::<()>(&["RENAME", &kept, broken]).await;
        }
        consumed.recovers().await;
        acked(&client, &names).await;
        let report = consumed.intake.stop().await;
        assert_eq!((report.restarts, report.received), (1, 47), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_removed_is_the_trouble_of_its_stream() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, names) = (Client::to(&server).await, names());
        let consumed = consume(source(&server.url(), &names));
        for name in &names {
            add(&client, name, 0..20).await;
        }
        acked(&client, &names).await;
        let _: u64 = client.run(&["XGROUP", "DESTROY", &names[1], "g"]).await;
        for name in &names {
            add(&client, name, 20..40).await;
        }
        for name in &names {
            consumed.handles(name, 0..40).await;
        }
        acked(&client, &names).await;
        consumed.recovers().await;
        let report = consumed.intake.stop().await;
        assert_eq!((report.restarts, report.acked), (0, 120), "{kind}");
    }
}

/// The user may not trim: entries are handled all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_cut_off_is_said() {
    let server = shared(RedisKind::Redis8).await;
    let (client, name, user) = (
        Client::to(&server).await,
        new_name("trim"),
        new_name("user"),
    );
    allow(&client, &user, &[&name]).await;
    let words = ["ACL", "SETUSER", &user, "-xtrim"];
    client.run::<()>(&words).await;
    let source = builder(&url(&server, &user), "g").stream(name.clone());
    let source = source.trim(StreamTrim::Settled);
    let source = source.trim_every(Duration::from_millis(20));
    let consumed = consume(source.build().unwrap());
    add(&client, &name, 0..20).await;
    consumed.handles(&name, 0..20).await;
    let part = consumed.has_failed(&format!("{name} (trimming)")).await;
    assert!(part.why.contains("refuses the user"), "{part:?}");
    add(&client, &name, 20..40).await;
    consumed.handles(&name, 0..40).await;
    allow(&client, &user, &[&name]).await;
    consumed.recovers().await;
    until("all is cut off", async || {
        client.run::<u64>(&["XLEN", &name]).await == 0
    })
    .await;
    assert_eq!(consumed.intake.stop().await.restarts, 0);
}

/// A member without the right to wait polls the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_refused_is_said() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name, user) = (
        Client::to(&server).await,
        new_name("unwoken"),
        new_name("user"),
    );
    allow(&client, &user, &[&name]).await;
    let words = ["ACL", "SETUSER", &user, "-xread"];
    client.run::<()>(&words).await;
    let source = builder(&url(&server, &user), "g").stream(name.clone());
    let consumed = consume(source.build().unwrap());
    add(&client, &name, 0..20).await;
    consumed.handles(&name, 0..20).await;
    let part = format!("{name} (waiting)");
    let part = consumed.has_failed(&part).await;
    assert!(part.why.contains("refuses the user"), "{part:?}");
    add(&client, &name, 20..40).await;
    consumed.handles(&name, 0..40).await;
    allow(&client, &user, &[&name]).await;
    consumed.recovers().await;
    assert_eq!(consumed.intake.stop().await.restarts, 0);
}

/// The stream belongs to the member whose share it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_fails_goes_to_another_member() {
    let server = shared(RedisKind::Valkey9).await;
    let client = Client::to(&server).await;
    // The last one is given up first.
    let names = ["first", "second", "broken"].map(new_name);
    let broken = &names[2];
    client.run::<Value>(&["SET", broken, "no stream"]).await;
    let old = consume(source(&server.url(), &names));
    old.has_failed(broken).await;
    let new = consume(source(&server.url(), &names));
    new.has_failed(broken).await;
    old.recovers().await;
    for name in &names[..2] {
        add(&client, name, 0..10).await;
        old.handles(name, 0..10).await;
    }
    let from = Instant::now();
    new.intake.stop().await;
    // Its leases are released, and do not have to run out.
    assert!(
        from.elapsed() < Duration::from_secs(15),
        "{:?}",
        from.elapsed()
    );
    old.has_failed(broken).await;
    let report = old.intake.stop().await;
    assert_eq!((report.restarts, report.acked), (0, 20));
}
