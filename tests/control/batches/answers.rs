//! What a handler of batches may answer, and what each receipt says then.

use std::time::Duration;

use keylane::error::{Failure, ReceiptError};
use keylane_testkit::ScriptError;
use keylane_testkit::scenario::{Message, outcome};

use super::{Reply, batched};
use crate::support::{CAPACITY, Recorder, dispatcher, submit_all};

#[tokio::test(start_paused = true)]
async fn the_three_forms_of_an_answer() {
    let units = dispatcher()
        .batch(4, Duration::ZERO)
        .spawn_batches(|batch: Vec<Message>| async move {
            if batch[0].id == 3 {
                Err(ScriptError::Error(3))
            } else {
                Ok(())
            }
        })
        .unwrap();
    let mut receipts = Vec::new();
    for id in 1..=4 {
        receipts.push(units.submit(Message::new(id % 2, id)).await.unwrap());
    }
    let mut failed = 0;
    for receipt in receipts {
        failed += u32::from(receipt.await.is_err());
    }
    assert_eq!(failed, 0, "1 and 3 are one batch, and 1 is its first");
    let recorder = Recorder::new();
    recorder.judge(&units, &units.drain().await, CAPACITY);

    let answers = dispatcher()
        .batch(4, Duration::ZERO)
        .spawn_batches(|batch: Vec<Message>| async move {
            Ok::<Vec<u64>, ScriptError>(batch.iter().map(|message| message.id * 10).collect())
        })
        .unwrap();
    for (n, receipt) in (1..).zip(submit_all(&answers, 1, 1..=4).await) {
        assert_eq!(receipt.await.unwrap(), n * 10);
    }
    recorder.judge(&answers, &answers.drain().await, CAPACITY);

    let each = dispatcher()
        .batch(4, Duration::ZERO)
        .spawn_batches(|batch: Vec<Message>| async move {
            let odd = |message: &Message| {
                if message.id % 2 == 1 {
                    Ok(message.id)
                } else {
                    Err(ScriptError::Error(message.id))
                }
            };
            batch.iter().map(odd).collect::<Vec<_>>()
        })
        .unwrap();
    let mut words = Vec::new();
    for receipt in submit_all(&each, 1, 1..=4).await {
        words.push(receipt.await.map_err(|error| error.to_string()));
    }
    let failed = |id: u64| {
        Err(format!(
            "given up: the handler failed: scripted error of id {id} (Error)"
        ))
    };
    // Without retries nothing is kept: each failure is its own, and final.
    assert_eq!(words, [Ok(1), failed(2), Ok(3), failed(4)]);
    let report = each.drain().await;
    assert_eq!((report.done, report.discarded), (2, 2));
    recorder.judge(&each, &report, CAPACITY);
}

#[tokio::test(start_paused = true)]
async fn too_few_answers_are_failures_and_too_many_are_dropped() {
    let recorder = Recorder::new();
    let dispatcher = batched(
        &recorder,
        dispatcher().batch(4, Duration::ZERO),
        |ids, _| Reply::Each(vec![true; if ids[0] < 10 { 1 } else { 9 }]),
    );
    let few = submit_all(&dispatcher, 1, 1..=3).await;
    let many = submit_all(&dispatcher, 2, 11..=13).await;
    let mut told = Vec::new();
    for receipt in few {
        told.push(receipt.await);
    }
    assert_eq!(told[0], Ok(1));
    for told in &told[1..] {
        assert_eq!(*told, Err(ReceiptError::Failed(Failure::NoAnswer)));
    }
    for receipt in many {
        assert_eq!(outcome(&receipt.await), "done");
    }
    recorder.finish(dispatcher).await;
}

/// Without anything that keeps messages, a batch that fails is over, and each receipt says why.
#[tokio::test(start_paused = true)]
async fn without_retries_a_batch_fails_together() {
    let recorder = Recorder::new();
    let dispatcher = batched(&recorder, dispatcher().batch(3, Duration::ZERO), |_, _| {
        Reply::Fail
    });
    let receipts = submit_all(&dispatcher, 1, 1..=3).await;
    let mut told = Vec::new();
    for receipt in receipts {
        told.push(receipt.await.unwrap_err());
    }
    assert_eq!(
        told[0],
        ReceiptError::Failed(Failure::Error(ScriptError::Error(1)))
    );
    for told in &told[1..] {
        let ReceiptError::Failed(Failure::WithBatch(why)) = told else {
            panic!("{told:?}")
        };
        assert_eq!(why, "the handler failed: scripted error of id 1 (Error)");
    }
    let report = recorder.finish(dispatcher).await;
    assert_eq!(report.discarded, 3);
}
