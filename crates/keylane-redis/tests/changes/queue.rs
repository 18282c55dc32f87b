//! A list that the leader alone consumes: it loses and reorders nothing over the changes.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use keylane::consume::{Intake, IntakeSettings};
use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_leader::{Candidate, Elections, Event, Office, Term, consuming};
use keylane_redis::{ListQueue, Redis, RedisElections};
use keylane_testkit::scenario::{Random, boxed, by_key, repeats};
use testkit_processes::elections::ttl;
use testkit_processes::{Answer, Journal, Trial, Workers, task, told_to_stop};
use testkit_servers::RedisKind;
use tokio::time::sleep;

const KEYS: u64 = 12;
const WORKERS: usize = 3;
/// What a leader keeps while it consumes.
type Running = (Box<dyn Any + Send>, Intake);

/// How long the terms of a leader and the leases of its list last in a soak.
const TTL: Duration = Duration::from_secs(1);

fn queue(address: &str) -> ListQueue {
    let redis = Redis::at(address).unwrap();
    let builder = ListQueue::builder(&redis, "orders").lease(ttl(TTL));
    builder.build().unwrap()
}

/// Leaders resign by themselves all the time. Meanwhile workers are killed and paused, whether they
/// lead or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_of_a_leader_loses_and_reorders_nothing() {
    let server = testkit_servers::Redis::start(RedisKind::Redis8)
        .await
        .unwrap();
    let orders = queue(&server.url());
    let send = move |key: u64, id: u64| {
        let orders = orders.clone();
        let message = RawMessage::new(id.to_string()).key(key.to_string());
        async move {
            match orders.push(&message).await {
                Ok(()) => Answer::Accepted,
                Err(_) => Answer::Unknown,
            }
        }
    };
    let workers = Workers {
        count: WORKERS,
        test: "queue::worker",
        task: server.url(),
    };
    let mut trial = Trial::start(KEYS, send, workers);
    trial.goes_on().await;
    let mut random = Random::new(39);
    for number in 0..repeats("KEYLANE_CHANGES", 6) {
        let worker = random.below(WORKERS as u64) as usize;
        trial.fault();
        if number.is_multiple_of(2) {
            trial.kill_worker(worker);
            trial.goes_on().await;
        } else {
            trial.pause_worker(worker).await;
            sleep(ttl(TTL) + Duration::from_millis(random.below(500))).await;
            trial.goes_on().await;
            trial.resume_worker(worker);
        }
    }
    let verdict = trial.end().await;
    println!("measured: the list of a leader: {verdict}");
    verdict.assert_nothing_lost();
}

/// The worker: this program again.
#[test]
fn worker() {
    let Some((journal, address)) = task() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let redis = Redis::at(&address).unwrap();
        let store = RedisElections::open(&redis, "jobs").unwrap();
        let elections = Elections::open(Arc::new(store)).unwrap();
        let office = Candidate::builder(&elections, "orders")
            .ttl(ttl(TTL))
            .retry_after(TTL / 10, TTL)
            .run(consuming(move |term| {
                consume(journal.clone(), address.clone(), term)
            }))
            .unwrap();
        tokio::select! {
            () = told_to_stop() => {}
            () = resign_again_and_again(&office) => {}
        }
        office.close().await;
        elections.close().await;
    });
}

async fn resign_again_and_again(office: &Office) {
    let (mut events, mut random) = (office.events(), Random::new(std::process::id().into()));
    while let Some(event) = events.next().await {
        if matches!(event, Event::Inaugurated(_)) {
            sleep(Duration::from_millis(random.below(600))).await;
            // It may be lost by now.
            let _ = office.resign();
        }
    }
}

/// Consumes the list, with handlers that end with the term.
async fn consume(journal: Journal, address: String, term: Term) -> Result<Running, BoxError> {
    let token = term.token().0;
    let handler = move |message: RawMessage| {
        let journal = journal.clone();
        async move {
            let number = |bytes| std::str::from_utf8(bytes).unwrap().parse().unwrap();
            let key = number(message.key.as_deref().unwrap());
            let id: u64 = number(&message.payload);
            journal
                .attempt(key, id, token, Duration::from_millis(id % 7))
                .await;
            Ok(())
        }
    };
    // A message may be in flight at several changes.
    let dispatcher = by_key()
        .leased_by(term.lanes())
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(100_000))
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(handler))?;
    let settings = IntakeSettings::new().longest_pause(Duration::from_millis(200));
    let source = queue(&address).source();
    let intake = dispatcher.consume_with(source, settings)?;
    Ok((Box::new(dispatcher), intake))
}
