//! Messages that the sink will never accept.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_inbox::spool::{BoxError, FlushError, OnRefused, Refused, Spool};

use crate::support::{Act, Scripted, check_sums, text};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_refused_message_halts_its_key_and_no_other() {
    let sink = Scripted::new([Act::Refuse(vec![1])]);
    let spool = Spool::builder(sink.clone())
        .batch(4, 1 << 20, MS)
        .open()
        .await
        .unwrap();
    for (key, payload) in [("a", "0"), ("a", "bad"), ("b", "0"), ("a", "2")] {
        spool.push(key, payload).await.unwrap();
    }
    assert_eq!(spool.flush().await, Err(FlushError::Halted { keys: 1 }));
    spool.push("a", "3").await.unwrap();
    spool.push("b", "1").await.unwrap();
    assert_eq!(spool.flush().await, Err(FlushError::Halted { keys: 1 }));
    assert_eq!(sink.written(), ["a=0", "b=0", "b=1"]);
    let halted = spool.halted();
    assert_eq!(halted.len(), 1);
    assert_eq!((&halted[0].key[..], halted[0].waiting), (&b"a"[..], 3));
    assert_eq!(halted[0].reason, "planned");

    // Once more, and then without it.
    sink.poison("bad");
    assert!(spool.resume("a"));
    assert!(!spool.resume("b"));
    assert_eq!(spool.flush().await, Err(FlushError::Halted { keys: 1 }));
    assert_eq!(text(&spool.skip("a").unwrap()), "a=bad");
    assert_eq!(spool.skip("a"), None);
    spool.flush().await.unwrap();
    assert_eq!(sink.written()[3..], ["a=2", "a=3"]);
    let report = spool.close().await;
    check_sums(&report);
    assert_eq!(report.skipped, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_halted_at_the_end_comes_back() {
    let sink = Scripted::new([Act::Refuse(vec![0])]);
    let spool = Spool::builder(sink.clone())
        .batch(2, 1 << 20, MS)
        .open()
        .await
        .unwrap();
    spool.push("a", "bad").await.unwrap();
    spool.push("a", "1").await.unwrap();
    let report = spool.close().await;
    check_sums(&report);
    let returned: Vec<_> = report.returned.iter().map(text).collect();
    assert_eq!(returned, ["a=bad", "a=1"]);
    assert_eq!(spool.close().await.left_in_memory, 2);
}

/// The sink does not say which one it is: it is found, and everything else is written once.
#[tokio::test(start_paused = true)]
async fn an_unnamed_refusal_is_found() {
    let sink = Scripted::new([]);
    sink.poison("bad");
    let letters = Arc::new(Mutex::new(Vec::new()));
    let shelf = Arc::clone(&letters);
    let accept = move |letter: Refused| {
        shelf.lock().unwrap().push(text(&letter.message));
        async move { Ok::<(), BoxError>(()) }
    };
    let spool = Spool::builder(sink.clone())
        .batch(8, 1 << 20, MS)
        .on_refused(OnRefused::dead_letter(accept))
        .open()
        .await
        .unwrap();
    for n in 0..5 {
        spool.push("a", n.to_string()).await.unwrap();
    }
    spool.push("a", "bad").await.unwrap();
    for n in 5..20 {
        spool.push("a", n.to_string()).await.unwrap();
    }
    spool.flush().await.unwrap();
    let expected: Vec<_> = (0..20).map(|n| format!("a={n}")).collect();
    assert_eq!(sink.written(), expected);
    assert_eq!(*letters.lock().unwrap(), ["a=bad"]);
    let report = spool.close().await;
    check_sums(&report);
    assert_eq!((report.delivered, report.dead_lettered), (20, 1));
}

#[tokio::test(start_paused = true)]
async fn dead_letters_that_fail_keep_the_key_waiting() {
    let sink = Scripted::new([Act::Refuse(vec![0])]);
    let failures = Arc::new(Mutex::new(3));
    let left = Arc::clone(&failures);
    let accept = move |_: Refused| {
        let mut left = left.lock().unwrap();
        *left -= i32::from(*left >= 0);
        let works = *left < 0;
        let panics = *left == 1;
        async move {
            assert!(!panics, "planned");
            match works {
                true => Ok(()),
                false => Err(BoxError::from("no shelf")),
            }
        }
    };
    let spool = Spool::builder(sink.clone())
        .batch(2, 1 << 20, MS)
        .on_refused(OnRefused::dead_letter(accept))
        .open()
        .await
        .unwrap();
    spool.push("a", "bad").await.unwrap();
    spool.push("a", "1").await.unwrap();
    tokio::time::sleep(3 * MS).await;
    assert_eq!(
        spool.stats().failing.unwrap().error,
        "dead letters: no shelf"
    );
    assert!(sink.written().is_empty());
    spool.flush().await.unwrap();
    assert_eq!(sink.written(), ["a=1"]);
    assert_eq!(
        (spool.stats().failures, spool.stats().dead_lettered),
        (3, 1)
    );
}
