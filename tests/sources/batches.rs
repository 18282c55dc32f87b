//! Batches of messages of a source: every way out of a batch is a way for all of its messages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::source::{Features, Outcome};
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_testkit::scenario::{MS, SECOND, quiet};
use keylane_testkit::{Act, Gate, History, Script, ScriptError};

use crate::given::Given;
use crate::support::{adds_up, until};

/// What is done about a message whose attempts are used up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Exhausted {
    Letters,
    AtSource,
    Discards,
    Halts,
}

/// The first message of a batch has used up its attempts, by processes that ended. It is given up
/// alone: the others are handled, or, behind a lane that halts, go back when the dispatcher ends.
#[tokio::test(start_paused = true)]
async fn a_batch_whose_first_message_is_given_up() {
    use Exhausted::{AtSource, Discards, Halts, Letters};
    for exhausted in [Letters, AtSource, Discards, Halts] {
        let features = Features::new().counts_attempts().dead_letters().nack();
        let (source, told) = Given::new(features, (1..=6).map(|id| (id, 3 * u32::from(id == 1))));
        let handled = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&handled);
        let letters = keylane_testkit::LetterBox::new(&History::new());
        let items = Dispatcher::builder(|_: &u64| 7_u64)
            .retry(Retry::fixed(MS).max_attempts(3))
            .batch(10, 10 * MS)
            .on_exhausted(match exhausted {
                Letters => OnExhausted::dead_letter(letters.sink(|id: &u64| *id)),
                AtSource => OnExhausted::AtSource,
                Discards => OnExhausted::Discard,
                Halts => OnExhausted::Halt,
            })
            .spawn_batches(move |batch: Vec<u64>| {
                seen.lock().unwrap().push(batch);
                async { Ok::<(), ScriptError>(()) }
            })
            .unwrap();
        let intake = items.consume(source).unwrap();
        if exhausted == Halts {
            until(|| items.stats().halted == 1).await;
            let report = items.drain().within(SECOND).await;
            assert_eq!((report.done, report.accepted), (0, 6), "{report}");
            let report = intake.ended().await;
            assert_eq!(report.nacked + report.given_back, 6, "{report}");
            continue;
        }
        until(|| told.settled().len() == 6).await;
        assert_eq!(*handled.lock().unwrap(), [[2, 3, 4, 5, 6]], "{exhausted:?}");
        let first = match exhausted {
            Discards => Outcome::Discarded,
            _ => Outcome::DeadLettered,
        };
        assert_eq!(told.outcome(1), Some(first), "{exhausted:?}");
        let report = intake.stop().await;
        adds_up(&report);
        assert_eq!(items.drain().await.done, 5);
    }
}

/// A batch that waits for a runner while its first message expires. The others have longer, and are
/// handled.
#[tokio::test(start_paused = true)]
async fn a_batch_whose_first_message_expires() {
    let (source, told) = Given::new(Features::new(), (1..=41).map(|id| (id, 0)));
    let history = History::new();
    let gate = Gate::new();
    // What the handler of the other key does: it has the only runner.
    let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
    let handled = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&handled);
    let items = Dispatcher::builder(|id: &u64| u64::from(*id == 41))
        .batch(2, Duration::ZERO)
        .on_exhausted(OnExhausted::Discard)
        .concurrency(1)
        .quantum(4)
        .expire_by(|id: &u64| {
            Some(match id % 2 {
                1 => 20 * MS,
                _ => 60 * SECOND,
            })
        })
        .spawn_batches(move |batch: Vec<u64>| {
            seen.lock().unwrap().extend(&batch);
            let waits = batch.contains(&41).then(|| script.run(1, 41, 1));
            async move {
                if let Some(waits) = waits {
                    waits.await?;
                }
                Ok::<(), ScriptError>(())
            }
        })
        .unwrap();
    let intake = items.consume(source).unwrap();
    gate.arrivals(1).await;
    tokio::time::sleep(100 * MS).await;
    quiet().await;
    gate.open();
    until(|| told.settled().len() == 41).await;
    let handled = handled.lock().unwrap().clone();
    let expired = (1..=41).filter(|id| !handled.contains(id));
    assert_eq!(expired.filter(|id| id % 2 == 0).count(), 0, "{handled:?}");
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!(report.acked, 41);
}
