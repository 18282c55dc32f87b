//! Connections that break while attempts are in flight.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::{Intake, IntakeState};
use keylane::source::RawMessage;
use keylane::{Context, Dispatcher, OnExhausted};
use keylane_redis::ListQueue;
use keylane_testkit::{Act, Evidence, History, Id, Rule, Script, ScriptError};
use testkit_servers::RedisKind;
use testkit_servers::proxy::Proxy;

use crate::crew::message;
use crate::state::check_idle;
use crate::support::{builder, connect, new_name, shared, until};

struct Worker {
    _consumer: Dispatcher<Bytes, RawMessage, Id, ScriptError>,
    intake: Intake,
    started: Arc<AtomicUsize>,
}

impl Worker {
    fn join(queue: &ListQueue, history: &History, act: Act) -> Self {
        let started = Arc::new(AtomicUsize::new(0));
        let starts = Arc::clone(&started);
        let script = Script::new(history).otherwise(act);
        let consumer = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
            .on_exhausted(OnExhausted::Halt)
            .spawn(move |context: Context<Bytes>, _: RawMessage| {
                starts.fetch_add(1, Ordering::SeqCst);
                script.run(1, 1, context.attempt())
            })
            .unwrap();
        let intake = consumer.consume(queue.source()).unwrap();
        Self {
            _consumer: consumer,
            intake,
            started,
        }
    }

    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }
}

/// The attempts of a worker that finds no server any more end with its lease. Another worker
/// handles its elements, and no element ever runs twice at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_cut_off_ends_what_it_does() {
    for resets in [false, true] {
        let server = shared(RedisKind::Redis7).await;
        let (list, mut raw) = (new_name("breaks"), connect(&server.url()).await);
        let target = (Ipv4Addr::LOCALHOST, server.port()).into();
        let proxy = Proxy::to(target).await.unwrap();
        let queue = builder(&server.url(), &list).build().unwrap();
        let behind = format!("redis://127.0.0.1:{}", proxy.port());
        // It knows of the end a tenth of that earlier than the server.
        let behind = builder(&behind, &list).lease(Duration::from_secs(6));
        let behind = behind.build().unwrap();
        let history = History::new();
        let here = Worker::join(&behind, &history, Act::never());
        let sending = history.sending(1, 1, 1);
        queue.push_all(&[message(1, 1)]).await.unwrap();
        sending.ok();
        until("it is at work", async || here.started() == 1).await;
        let there = Worker::join(&queue, &history, Act::ok());
        proxy.cut();
        if resets {
            proxy.reset();
        }
        until("the other one has it", async || there.started() == 1).await;
        until("it is handled", async || there.intake.stats().acked == 1).await;
        let verdict = history.check(&Evidence::new().redelivers()).unwrap();
        verdict.assert_judged(&[Rule::Exclusion]);
        assert_eq!(here.started(), 1);
        proxy.heal();
        // A worker that is not connected leaves nothing, and is forgotten later.
        until("it is connected", async || {
            here.intake.stats().state == IntakeState::Running
        })
        .await;
        there.intake.stop().await;
        here.intake.stop().await;
        check_idle(&mut raw, &list).await;
    }
}
