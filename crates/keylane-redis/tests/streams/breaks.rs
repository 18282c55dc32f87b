//! Connections that break while attempts are in flight.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::Intake;
use keylane::source::RawMessage;
use keylane::{Context, Dispatcher, OnExhausted};
use keylane_redis::StreamWatch;
use keylane_testkit::{Act, Evidence, History, Id, Rule, Script, ScriptError};
use testkit_servers::RedisKind;
use testkit_servers::proxy::Proxy;

use crate::support::{Client, LEASE, builder, new_name, shared, until};

struct Member {
    _consumer: Dispatcher<Bytes, RawMessage, Id, ScriptError>,
    intake: Intake,
    watch: StreamWatch,
    started: Arc<AtomicUsize>,
}

impl Member {
    /// Adds a member whose first attempt takes this long, and the others no time.
    fn join(url: &str, name: &str, history: &History, lease: Duration, first: Duration) -> Self {
        let started = Arc::new(AtomicUsize::new(0));
        let starts = Arc::clone(&started);
        let script =
            Script::new(history).choose(move |_| match starts.fetch_add(1, Ordering::SeqCst) {
                0 => Act::ok().sleeps(first),
                _ => Act::ok(),
            });
        let consumer = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
            .on_exhausted(OnExhausted::Halt)
            .spawn(move |context: Context<Bytes>, _: RawMessage| {
                script.run(1, 1, context.attempt())
            })
            .unwrap();
        let source = builder(url, "g").stream(name.to_owned());
        let source = source.lease(lease).build().unwrap();
        let watch = source.watch();
        let intake = consumer.consume(source).unwrap();
        Self {
            _consumer: consumer,
            intake,
            watch,
            started,
        }
    }

    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }
}

/// A member whose first attempt is in flight behind a proxy, and another one that would continue.
async fn pair(lease: Duration, first: Duration) -> (Client, String, Proxy, History, [Member; 2]) {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("breaks"));
    let target = (Ipv4Addr::LOCALHOST, server.port()).into();
    let proxy = Proxy::to(target).await.unwrap();
    let history = History::new();
    let behind = format!("redis://127.0.0.1:{}", proxy.port());
    let here = Member::join(&behind, &name, &history, lease, first);
    until("it owns the stream", async || {
        here.watch.counts().owned == 1
    })
    .await;
    let sending = history.sending(1, 1, 1);
    client.add(&name, "a", "0").await;
    sending.ok();
    until("it is at work", async || here.started() == 1).await;
    let there = Member::join(&server.url(), &name, &history, lease, Duration::ZERO);
    (client, name, proxy, history, [here, there])
}

/// Checks that two attempts have never run at once.
fn judge(history: &History) {
    let verdict = history.check(&Evidence::new().redelivers()).unwrap();
    verdict.assert_judged(&[Rule::Exclusion]);
}

/// The stream goes on under its old lease, and the repeated entry waits for the attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_connections_break_keeps_its_stream() {
    let (client, name, proxy, history, [here, there]) = pair(6 * LEASE, 9 * LEASE).await;
    proxy.reset();
    until("it is noticed", async || here.intake.stats().restarts > 0).await;
    until("it is handled", async || client.left(&name, "g").await == 0).await;
    judge(&history);
    assert_eq!((here.started(), there.started()), (2, 0));
    assert_eq!(
        here.intake.stats().stale,
        1,
        "the attempt went on to its end"
    );
    here.intake.stop().await;
    there.intake.stop().await;
}

/// Its attempts end with its lease, and not when it reaches a server again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_cut_off_ends_what_it_does() {
    cut_off(Proxy::cut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_finds_no_server_any_more_ends_what_it_does() {
    cut_off(|proxy| {
        proxy.cut();
        proxy.reset();
    })
    .await;
}

async fn cut_off(cut: impl FnOnce(&Proxy)) {
    // It knows of the end a tenth of that earlier than the server.
    let (client, name, proxy, history, [here, there]) = pair(5 * LEASE, 60 * LEASE).await;
    cut(&proxy);
    until("the other one has it", async || there.started() == 1).await;
    until("it is handled", async || client.left(&name, "g").await == 0).await;
    judge(&history);
    assert_eq!(here.started(), 1);
    proxy.heal();
    there.intake.stop().await;
    here.intake.stop().await;
}
