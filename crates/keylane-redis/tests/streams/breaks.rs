//! Connections that break while attempts are in flight.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane::source::RawMessage;
use keylane::{Context, Dispatcher, Intake, OnExhausted};
use keylane_redis::StreamWatch;
use keylane_testkit::proxy::Proxy;
use keylane_testkit::servers::RedisKind;
use tokio::time::sleep;

use crate::support::{Client, LEASE, builder, new_name, shared, until};

/// What runs at a time, of one key.
#[derive(Debug, Default)]
struct Running {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// One attempt, until it ends or is dropped.
struct Attempt(Arc<Running>);

impl Attempt {
    fn begin(running: &Arc<Running>) -> Self {
        let now = running.now.fetch_add(1, Ordering::SeqCst) + 1;
        running.most.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(running))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Member {
    _consumer: Dispatcher<Bytes, RawMessage, (), std::convert::Infallible>,
    intake: Intake,
    watch: StreamWatch,
    started: Arc<AtomicUsize>,
}

impl Member {
    /// The first attempt of it takes this long, the others nothing.
    fn join(url: &str, name: &str, running: &Arc<Running>, first: Duration) -> Self {
        let started = Arc::new(AtomicUsize::new(0));
        let (running, starts) = (Arc::clone(running), Arc::clone(&started));
        let consumer = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
            .on_exhausted(OnExhausted::Halt)
            .spawn(move |_: Context<Bytes>, _: RawMessage| {
                let attempt = Attempt::begin(&running);
                let is_first = starts.fetch_add(1, Ordering::SeqCst) == 0;
                async move {
                    if is_first {
                        sleep(first).await;
                    }
                    drop(attempt);
                    Ok(())
                }
            })
            .unwrap();
        let source = builder(url, "g").stream(name.to_owned()).build().unwrap();
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

/// A member whose first attempt is in flight behind a proxy, and another one that would go on.
async fn pair(first: Duration) -> (Client, String, Proxy, Arc<Running>, [Member; 2]) {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("breaks"));
    let target = (Ipv4Addr::LOCALHOST, server.port()).into();
    let proxy = Proxy::to(target).await.unwrap();
    let running = Arc::new(Running::default());
    let behind = format!("redis://127.0.0.1:{}", proxy.port());
    let here = Member::join(&behind, &name, &running, first);
    until("it owns the stream", async || {
        here.watch.counts().owned == 1
    })
    .await;
    client.add(&name, "a", "0").await;
    until("it is at work", async || here.started() == 1).await;
    let there = Member::join(&server.url(), &name, &running, Duration::ZERO);
    (client, name, proxy, running, [here, there])
}

/// The stream goes on under the lease that it had, and what comes again waits for the attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_connections_break_keeps_its_stream() {
    let (client, name, proxy, running, [here, there]) = pair(3 * LEASE).await;
    proxy.reset();
    until("it is noticed", async || here.intake.stats().restarts > 0).await;
    until("it is handled", async || client.left(&name, "g").await == 0).await;
    assert_eq!((here.started(), there.started()), (2, 0));
    assert_eq!(running.most.load(Ordering::SeqCst), 1, "two ran at once");
    assert_eq!(
        here.intake.stats().stale,
        1,
        "the attempt went on to its end"
    );
    here.intake.stop().await;
    there.intake.stop().await;
}

/// Its attempts end with its lease, and not when it hears of a server again.
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
    let (client, name, proxy, running, [here, there]) = pair(60 * LEASE).await;
    cut(&proxy);
    until("the other one has it", async || there.started() == 1).await;
    assert_eq!(running.most.load(Ordering::SeqCst), 1, "two ran at once");
    until("it is handled", async || client.left(&name, "g").await == 0).await;
    assert_eq!(here.started(), 1);
    proxy.heal();
    there.intake.stop().await;
    here.intake.stop().await;
}
