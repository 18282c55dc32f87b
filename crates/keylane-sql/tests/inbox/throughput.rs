//! How fast a backlog is worked off. A measurement: nothing is asserted on time.

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::NewMessage;
use keylane_testkit::scenario::until;
use tokio::time::Instant;

use crate::rig::{Own, decoded};
use crate::support::Kind;

const MESSAGES: u64 = 50_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, for a release build"]
async fn a_backlog_of_both_databases() {
    for round in 1..=3 {
        for kind in [Kind::Postgres, Kind::MariaDb] {
            let server = Own::start(kind).await;
            for keys in [100, 10_000] {
                let handled = handled_per_second(&server, keys).await;
                println!("round {round}, {kind:?}, {keys} keys: {handled:.0} a second");
            }
        }
    }
}

/// Handlers that do nothing, at messages of 100 bytes.
async fn handled_per_second(server: &Own, keys: u64) -> f64 {
    let place = server.place().await.migrated().await;
    let inbox = place.inbox().await;
    let numbers = Vec::from_iter(0..MESSAGES);
    for numbers in numbers.chunks(1_000) {
        let message = |n: &u64| NewMessage::new((n % keys).to_string(), vec![b'x'; 100]);
        let messages = numbers.iter().map(message);
        inbox.inbox().accept_many(messages).await.unwrap();
    }
    let dispatcher = Dispatcher::builder(|raw: &RawMessage| raw.key.clone())
        .concurrency(256)
        .on_exhausted(OnExhausted::AtSource)
        .spawn(|_: RawMessage| async { Ok::<_, std::convert::Infallible>(()) })
        .unwrap();
    let began = Instant::now();
    let intake = dispatcher.consume(decoded(inbox.source())).unwrap();
    until(|| intake.stats().acked == MESSAGES).await;
    // What was acked is confirmed.
    let report = intake.stop().await;
    assert_eq!(report.acked, MESSAGES);
    MESSAGES as f64 / began.elapsed().as_secs_f64()
}
