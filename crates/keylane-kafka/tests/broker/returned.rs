//! A record that no lane takes goes back, and its partition is read again from there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use keylane::OnExhausted;
use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane_testkit::scenario::{boxed, by_key};
use tokio::sync::Semaphore;

use crate::stage::{Stage, place_of, until};

/// The record that is larger than the capacity.
const LARGE: u64 = 5;

/// More than the source holds, so that some are read ahead when it goes back.
const RECORDS: u64 = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_behind_a_record_that_goes_back_is_handled_once_and_in_order() {
    let stage = Stage::new(1).await;
    stage.publish((0..RECORDS).map(|id| id % 7)).await;
    let handled = Arc::<Mutex<Vec<RawMessage>>>::default();
    let done = Arc::clone(&handled);
    let gate = Arc::new(Semaphore::new(0));
    let theirs = Arc::clone(&gate);
    let consumer = by_key()
        .capacity_bytes(100, |raw| match place_of(raw).1 {
            LARGE => 101,
            _ => 1,
        })
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |raw: RawMessage| {
            let (gate, done) = (Arc::clone(&theirs), Arc::clone(&done));
            async move {
                let _ = gate.acquire().await;
                done.lock().unwrap().push(raw);
                Ok(())
            }
        }))
        .unwrap();
    // The others are read ahead, and wait for room.
    let settings = IntakeSettings::new().held(16);
    let source = stage.topic.builder().build().unwrap();
    let intake = consumer.consume_with(source, settings).unwrap();
    // It goes back after a second each time.
    until("it has gone back", async || intake.stats().nacked > 0).await;
    gate.close();
    until("it came twice, and all others are handled", async || {
        let handled = handled.lock().unwrap().len() as u64;
        intake.stats().nacked >= 2 && handled >= RECORDS - 1
    })
    .await;
    stage.committed(&[LARGE]).await;
    let report = intake.stop().await;
    let sum = report.acked + report.dead_lettered + report.nacked + report.given_back;
    assert_eq!(sum, report.received, "{report}");
    let mut of_keys: BTreeMap<Bytes, Vec<u64>> = BTreeMap::new();
    for raw in &*handled.lock().unwrap() {
        let offsets = of_keys.entry(raw.key.clone().unwrap()).or_default();
        offsets.push(place_of(raw).1);
    }
    assert!(of_keys.values().all(|offsets| offsets.is_sorted()));
    let mut all: Vec<_> = of_keys.into_values().flatten().collect();
    all.sort_unstable();
    let expected: Vec<_> = (0..RECORDS).filter(|offset| *offset != LARGE).collect();
    assert_eq!(all, expected);
}
