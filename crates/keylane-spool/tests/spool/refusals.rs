//! Messages that the sink will never accept.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_spool::{BoxError, FlushError, OnRefused, Refused, Spool};
use keylane_testkit::Lines;

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

/// Dead letters that are kept, and what keeps them.
fn shelf() -> (Arc<Mutex<Vec<String>>>, OnRefused) {
    let letters = Arc::new(Mutex::new(Vec::new()));
    let shelf = Arc::clone(&letters);
    let accept = move |letter: Refused| {
        shelf.lock().unwrap().push(text(&letter.message));
        async move { Ok::<(), BoxError>(()) }
    };
    (letters, OnRefused::dead_letter(accept))
}

/// The sink does not say which one it is: it is found, and everything else is written once.
#[tokio::test(start_paused = true)]
async fn an_unnamed_refusal_is_found() {
    let sink = Scripted::new([]);
    sink.poison("bad");
    let (letters, on_refused) = shelf();
    let spool = Spool::builder(sink.clone())
        .batch(8, 1 << 20, MS)
        .on_refused(on_refused)
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

/// A shelf that fails a few times, once by a panic, and then works.
#[tokio::test(start_paused = true)]
async fn dead_letters_that_fail_keep_their_key_waiting_and_no_other() {
    let sink = Scripted::new([Act::Refuse(vec![0])]);
    let left = Arc::new(Mutex::new(3));
    let failures = Arc::clone(&left);
    let accept = move |_: Refused| {
        let failures = Arc::clone(&failures);
        async move {
            let left = *failures.lock().unwrap();
            *failures.lock().unwrap() = left - i32::from(left > 0);
            match left {
                0 => Ok(()),
                // As a panic does, without the noise.
                2 => std::panic::resume_unwind(Box::new("planned")),
                _ => Err(BoxError::from("no shelf")),
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
    for n in 0..5 {
        spool.push("b", n.to_string()).await.unwrap();
    }
    tokio::time::sleep(3 * MS).await;
    // All of it while the first letter waits to be offered again.
    assert_eq!(*left.lock().unwrap(), 2);
    assert_eq!(sink.written(), ["b=0", "b=1", "b=2", "b=3", "b=4"]);
    let stats = spool.stats();
    assert_eq!(stats.letters_failing.unwrap().error, "no shelf");
    assert!(stats.failing.is_none(), "the sink works");
    assert_eq!((stats.letters_waiting, stats.halted_keys), (1, 0));
    assert!(spool.halted().is_empty());
    assert!(!spool.resume("a"));
    assert!(spool.skip("a").is_none());
    spool.flush().await.unwrap();
    assert_eq!(sink.written()[5..], ["a=1"]);
    let stats = spool.stats();
    assert_eq!((stats.failures, stats.dead_lettered), (3, 1));
    assert!(stats.letters_failing.is_none());
    check_sums(&spool.close().await);
}

/// However many messages wait behind it, and while the letter is at the dead letters.
#[tokio::test(start_paused = true)]
async fn a_letter_that_hangs_holds_up_its_key_only() {
    const BEHIND: usize = 3_000;
    let sink = Scripted::new([Act::Refuse(vec![0])]);
    let accept = |_: Refused| std::future::pending::<Result<(), BoxError>>();
    let spool = Spool::builder(sink.clone())
        .batch(10, 1 << 20, MS)
        .on_refused(OnRefused::dead_letter(accept))
        .timeout(Duration::from_secs(3_600))
        .open()
        .await
        .unwrap();
    for n in 0..BEHIND {
        spool.push("a", n.to_string()).await.unwrap();
    }
    for n in 0..100 {
        spool.push("b", n.to_string()).await.unwrap();
    }
    tokio::time::sleep(100 * MS).await;
    // None of them came behind the refused one.
    sink.check_order(100);
    let stats = spool.stats();
    assert_eq!(stats.waiting as usize, BEHIND);
    assert_eq!((stats.in_flight, stats.letters_waiting), (0, 1));
    let report = spool.close().within(MS).await;
    check_sums(&report);
    let returned: Vec<_> = report.returned.iter().map(text).collect();
    let expected: Vec<_> = (0..BEHIND).map(|n| format!("a={n}")).collect();
    assert_eq!(returned, expected);
}

/// A sink that is down does not keep a letter from being written.
#[tokio::test(start_paused = true)]
async fn letters_are_written_while_the_sink_fails() {
    let sink = Scripted::new([Act::Refuse(vec![0, 1])]);
    sink.then(Act::Fail);
    let (letters, on_refused) = shelf();
    let spool = Spool::builder(sink.clone())
        .batch(3, 1 << 20, MS)
        .on_refused(on_refused)
        .open()
        .await
        .unwrap();
    for (key, payload) in [("a", "bad"), ("b", "bad"), ("c", "0"), ("a", "1")] {
        spool.push(key, payload).await.unwrap();
    }
    tokio::time::sleep(20 * MS).await;
    assert!(spool.stats().failing.is_some());
    assert_eq!(*letters.lock().unwrap(), ["a=bad", "b=bad"]);
    sink.then(Act::Write);
    spool.flush().await.unwrap();
    let mut written = sink.written();
    written.sort();
    assert_eq!(written, ["a=1", "c=0"]);
}

/// The line has the id, by which the message is found at its producer and in the letters.
#[tokio::test(start_paused = true)]
async fn a_refused_message_is_logged_with_its_id_and_key() {
    let lines = Lines::new();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.writer());
    let _on = keylane_testkit::set_subscriber(subscriber.finish());
    let letters = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&letters);
    let to_letters = OnRefused::dead_letter(move |refused: Refused| {
        kept.lock().unwrap().push(refused.message.id);
        async { Ok::<(), BoxError>(()) }
    });
    let mut ids = Vec::new();
    for on_refused in [OnRefused::Halt, to_letters] {
        let sink = Scripted::new([Act::Refuse(vec![0])]);
        let spool = Spool::builder(sink).on_refused(on_refused);
        let spool = spool.name("mail").batch(1, 1 << 20, MS);
        let spool = spool.open().await.unwrap();
        spool.push("a", "bad").await.unwrap();
        let _ = spool.flush().await;
        ids.extend(spool.skip("a").map(|halted| halted.id));
        spool.close().await;
    }
    ids.append(&mut letters.lock().unwrap());
    let logged = lines.with("the sink refused a message");
    let fates = ["ERROR", "its key halts", "WARN", "it becomes a dead letter"];
    assert_eq!((logged.len(), ids.len()), (2, 2), "{:?}", lines.all());
    for ((line, id), fate) in logged.iter().zip(ids).zip(fates.chunks(2)) {
        let fields = format!("spool=mail id={id} key=#");
        assert!(line.contains(&fields), "{line}");
        assert!(fate.iter().all(|text| line.contains(text)), "{line}");
    }
}
