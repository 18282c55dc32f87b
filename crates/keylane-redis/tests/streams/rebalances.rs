//! Members of a group that come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::{Intake, IntakeSettings};
use keylane::source::{RawMessage, Received, Source as _};
use keylane::{Context, Dispatcher, OnExhausted};
use keylane_redis::{StreamWatch, partition_of};
use keylane_testkit::{Act, Evidence, History, Id, Rule, Script, ScriptError};
use redis::cmd;
use testkit_servers::RedisKind;
use tokio::time::Instant;

use crate::parts::{allow, url};
use crate::support::{Client, Driven, LEASE, builder, new_name, payloads, shared, texts, until};

const PARTITIONS: u32 = 6;
const KEYS: u64 = 40;

type Consumer = Dispatcher<Bytes, RawMessage, Id, ScriptError>;

struct Member {
    _consumer: Consumer,
    intake: Intake,
    watch: StreamWatch,
}

impl Member {
    fn join(url: &str, name: &str, history: &History) -> Self {
        let script =
            Script::new(history).choose(|cue| Act::ok().sleeps(Duration::from_millis(cue.id % 4)));
        let handler = move |context: Context<Bytes>, message: RawMessage| {
            let number = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap().parse().unwrap();
            let key = number(&message.key.unwrap());
            script.run(key, number(&message.payload), context.attempt())
        };
        let consumer = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
            .concurrency(32)
            .on_exhausted(OnExhausted::Halt)
            .spawn(handler)
            .unwrap();
        // No pause of the machine lasts this long.
        let source = builder(url, "g").partitions(name, PARTITIONS);
        let source = source.lease(20 * LEASE).build().unwrap();
        let watch = source.watch();
        let settings = IntakeSettings::new().longest_pause(Duration::from_millis(500));
        let intake = consumer.consume_with(source, settings).unwrap();
        Self {
            _consumer: consumer,
            intake,
            watch,
        }
    }

    fn owned(&self) -> u64 {
        self.watch.counts().owned
    }
}

async fn shares(members: &[&Member], expected: &[u64]) {
    let of = || members.iter().map(|one| one.owned()).collect::<Vec<_>>();
    let what = format!("{expected:?} streams are owned");
    until(&what, async || of() == expected).await;
}

/// Three members join and leave while messages come. Each message is handled once, in the order of
/// its key. Shares are even and stay as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_shared_evenly_and_the_order_holds() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("rebalance"));
        let (history, url) = (History::new(), server.url());
        let is_over = Arc::new(AtomicBool::new(false));
        let producing = tokio::spawn({
            let (client, name, history) = (client.clone(), name.clone(), history.clone());
            let is_over = Arc::clone(&is_over);
            async move {
                let mut id = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let (key, seq) = (id % KEYS, id / KEYS + 1);
                    let number = partition_of(key.to_string().as_bytes(), PARTITIONS);
                    let sending = history.sending(key, seq, id);
                    let mut add = cmd("XADD");
                    add.arg(format!("{name}:{number}"))
                        .arg("*")
                        .arg("key")
                        .arg(key);
                    add.arg("payload").arg(id);
                    let _: String = client.ask(&add).await;
                    sending.ok();
                    id += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                id
            }
        });
        let first = Member::join(&url, &name, &history);
        shares(&[&first], &[6]).await;
        let second = Member::join(&url, &name, &history);
        shares(&[&first, &second], &[3, 3]).await;
        let third = Member::join(&url, &name, &history);
        let fourth = Member::join(&url, &name, &history);
        let all = [&first, &second, &third, &fourth];
        // The two oldest members have one more, unless the last two have joined at the same moment.
        until("all have some", async || {
            all.iter().all(|one| one.owned() > 0)
        })
        .await;
        until("all are owned", async || {
            all.iter().map(|one| one.owned()).sum::<u64>() == u64::from(PARTITIONS)
        })
        .await;
        shares(&[&first, &second], &[2, 2]).await;
        let before: Vec<_> = all.iter().map(|one| one.watch.counts()).collect();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let after: Vec<_> = all.iter().map(|one| one.watch.counts()).collect();
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(
                (before.gained, before.gone),
                (after.gained, after.gone),
                "it flaps"
            );
        }
        let report = second.intake.stop().await;
        assert_eq!(
            report.received,
            report.acked + report.given_back,
            "{report}"
        );
        shares(&[&first, &third, &fourth], &[2, 2, 2]).await;
        third.intake.stop().await;
        fourth.intake.stop().await;
        shares(&[&first], &[6]).await;

        is_over.store(true, Ordering::Relaxed);
        let sent = producing.await.unwrap() as usize;
        until("all are handled", async || history.handled().len() >= sent).await;
        first.intake.stop().await;
        for number in 0..PARTITIONS {
            assert_eq!(client.left(&format!("{name}:{number}"), "g").await, 0);
        }
        assert_eq!(
            history.handled().len(),
            sent,
            "{kind}: some were handled twice"
        );
        let verdict = history.check(&Evidence::new().quiescent(Instant::now()));
        let verdict = verdict.unwrap_or_else(|wrong| panic!("{kind}: {}", wrong[0]));
        verdict.assert_judged(&[
            Rule::NoLoss,
            Rule::NoInvention,
            Rule::Exclusion,
            Rule::Order,
        ]);
    }
}

/// A revoked stream hands over nothing more, also none of its earlier entries, until it has gone
/// and come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_more_comes_of_a_stream_that_is_to_go() {
    let server = shared(RedisKind::Valkey9).await;
    let (client, name) = (Client::to(&server).await, new_name("surplus"));
    client.add_all(&name, 0..6).await;
    let source = builder(&server.url(), "g").stream(name.clone());
    let mut source = Driven::open(source.build().unwrap()).await;
    let handed = source.receive(2).await;
    let generation = handed[0].generation;
    // A member that was there before, until it leaves.
    let (seconds, _): (u64, u64) = client.run(&["TIME"]).await;
    let until = ((seconds + 600) * 1_000).to_string();
    let members = format!("{{{name}}}:keylane:members:g");
    let _: u64 = client.run(&["ZADD", &members, &until, "000"]).await;
    let revoked = loop {
        if let (_, Received::Revoked(revoked)) = source.once(0, Duration::from_secs(1)).await {
            break revoked;
        }
    };
    assert_eq!(revoked, [generation]);
    client.add_all(&name, 6..8).await;
    let more = source.receive_for(Duration::from_millis(300)).await;
    assert_eq!(payloads(&more), texts([]));
    source.ack(&handed).await;
    source.0.release(&[generation]).await.unwrap();
    let _: u64 = client.run(&["ZREM", &members, "000"]).await;
    let again = source.receive(6).await;
    assert_eq!(payloads(&again), texts(2..8));
    assert!(again.iter().all(|one| one.generation > generation));
}

/// It has an older state of the stream from an earlier time, and leaves before it has read anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_has_left_does_not_set_the_group_back_when_it_comes_again() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, user) = (Client::to(&server).await, new_name("user"));
        let name = new_name("again");
        allow(&client, &user, &[&name]).await;
        let member = |url: &str| {
            let source = builder(url, "g").stream(name.clone());
            Driven(source.build().unwrap())
        };
        let (mut first, mut second) = (member(&url(&server, &user)), member(&server.url()));
        for (member, numbers) in [(&mut first, 0..2), (&mut second, 2..6)] {
            member.0.open().await.unwrap();
            client.add_all(&name, numbers.clone()).await;
            let handed = member.receive(numbers.count()).await;
            member.ack(&handed).await;
            member.0.close().await.unwrap();
        }

        // The right that it needs for its first page.
        let forbid = ["ACL", "SETUSER", &user, "-xpending"];
        client.run::<()>(&forbid).await;
        first.0.open().await.unwrap();
        let watch = first.0.watch();
        until("it owns the stream", async || {
            first.once(0, Duration::from_millis(10)).await;
            watch.counts().owned == 1
        })
        .await;
        first.0.close().await.unwrap();
        allow(&client, &user, &[&name]).await;

        first.0.open().await.unwrap();
        client.add_all(&name, 6..8).await;
        let handed = first.receive(2).await;
        assert_eq!(payloads(&handed), texts(6..8), "{kind}");
        first.0.close().await.unwrap();
    }
}
