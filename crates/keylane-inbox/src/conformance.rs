//! A test suite for implementations of [`InboxStore`].
//!
//! # Examples
//!
//! ```no_run
//! use std::sync::Arc;
//! use keylane_inbox::conformance::{self, Place};
//! use keylane_inbox::store::{EmbeddedStore, InboxStore, Settings};
//!
//! struct Directory(tempfile::TempDir);
//!
//! #[keylane_inbox::async_trait]
//! impl Place for Directory {
//!     async fn open(&self) -> Arc<dyn InboxStore> {
//!         let store = EmbeddedStore::open(self.0.path(), Settings::default()).await;
//!         Arc::new(store.expect("the directory is ours"))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance::check(|| Directory(tempfile::tempdir().expect("there is room"))).await;
//! # }
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{AcceptError, StoreError};
use crate::letter::{Letter, LetterKind};
use crate::message::NewMessage;
use crate::store::{Accepted, InboxStore, Redriven, Settled};

/// A place that holds one store.
#[async_trait]
pub trait Place: Send + Sync {
    /// Opens the store of this place: the same one each time. It was closed before, or never
    /// opened. It has the default limits, and remembers ids for at least a minute.
    async fn open(&self) -> Arc<dyn InboxStore>;
}

/// Runs every case, each in a place of its own.
///
/// # Panics
///
/// Panics if the store breaks a rule. The case is printed before it starts.
pub async fn check<P: Place>(mut new: impl FnMut() -> P) {
    for (name, case) in CASES {
        println!("case: {name}");
        case(&new()).await;
    }
}

type Case = for<'a> fn(&'a dyn Place) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), |place| Box::pin($name(place)))),*]
    };
}

const CASES: &[(&str, Case)] = cases![
    empty,
    order,
    what_was_accepted_comes_back,
    parts_of_every_size,
    sequences_are_never_used_twice,
    calls_of_nothing,
    pages,
    concurrent_calls,
    settled_twice,
    duplicates_by_id,
    duplicates_by_version,
    duplicates_in_one_call,
    beyond_the_limits,
    letters,
    redriven_letters_keep_their_place,
    redriven_letters_are_told,
    purged_letters,
    long_errors_are_cut,
    versions,
    the_tail_moves,
    closed,
    everything_survives_a_restart,
    as_a_naive_model,
];

fn message(key: &str, payload: &str) -> NewMessage {
    NewMessage::new(key.to_owned(), payload.to_owned())
}

fn many(count: usize) -> Vec<NewMessage> {
    let one = |n| message(&format!("key-{}", n % 7), &format!("payload {n}"));
    (0..count).map(one).collect()
}

async fn accept(store: &dyn InboxStore, messages: Vec<NewMessage>) -> Vec<u64> {
    let accepted = store.accept(messages).await.expect("accepted");
    accepted.into_iter().map(Accepted::sequence).collect()
}

async fn waiting(store: &dyn InboxStore) -> Vec<u64> {
    let found = store.scan(0, usize::MAX, usize::MAX).await.expect("read");
    found.into_iter().map(|message| message.sequence).collect()
}

fn dead(sequence: u64, attempts: u32, error: &str) -> Settled {
    Settled::DeadLetter {
        sequence,
        attempts,
        kind: LetterKind::Failed,
        error: error.to_owned(),
    }
}

async fn empty(place: &dyn Place) {
    let store = place.open().await;
    assert_eq!(waiting(&*store).await, []);
    assert_eq!(store.letters(0, 10).await, Ok(vec![]));
    assert_eq!(store.letter(1).await, Ok(None));
    assert_eq!(
        store.read(&[0, 1, u64::MAX]).await,
        Ok(vec![None, None, None])
    );
    assert_eq!(store.version(b"key").await, Ok(None));
    assert_eq!(store.tail().borrow().sequence, 0);
    assert_eq!(store.take_redriven(), Redriven::Sequences(vec![]));
    let stats = store.stats().await.expect("read");
    assert_eq!((stats.waiting, stats.letters, stats.oldest), (0, 0, None));
}

async fn order(place: &dyn Place) {
    let store = place.open().await;
    let first = accept(&*store, many(10)).await;
    let second = accept(&*store, many(10)).await;
    let all = [first, second].concat();
    assert!(all[0] > 0);
    assert!(all.is_sorted_by(|a, b| a < b), "in the order of the calls");
    assert_eq!(waiting(&*store).await, all);
    let stats = store.stats().await.expect("read");
    assert_eq!((stats.waiting, stats.oldest), (20, Some(all[0])));
    assert!(stats.waiting_bytes > 0 && stats.live_bytes >= stats.waiting_bytes);
}

async fn what_was_accepted_comes_back(place: &dyn Place) {
    let store = place.open().await;
    let full = NewMessage::new(vec![0, 255, b'\n'], vec![0xff, 0x00])
        .id("id")
        .version(u64::MAX)
        .header("", "")
        .header("content-type", "text/plain")
        .header("content-type", vec![0xff]);
    let bare = NewMessage::new("", "");
    let sequences = accept(&*store, vec![full.clone(), bare.clone()]).await;
    let read = store.read(&sequences).await.expect("read");
    let read = read
        .into_iter()
        .map(|message| message.expect("it waits").into_new());
    assert_eq!(Vec::from_iter(read), [full, bare]);
}

async fn parts_of_every_size(place: &dyn Place) {
    let store = place.open().await;
    let sizes = [0, 1, 100, 4_095, 4_096, 4_097, 70_000, 1 << 20, 16 << 20];
    for bytes in sizes {
        let message = NewMessage::new(vec![7; bytes.min(1_024)], vec![9; bytes]);
        let sequences = accept(&*store, vec![message.clone()]).await;
        let read = store.read(&sequences).await.expect("read").remove(0);
        assert!(
            read.expect("it waits").into_new() == message,
            "{bytes} bytes"
        );
    }
    let found = store.scan(0, 100, usize::MAX).await.expect("read");
    let found = found.iter().map(|message| message.payload.len());
    assert_eq!(Vec::from_iter(found), sizes);
}

async fn sequences_are_never_used_twice(place: &dyn Place) {
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let store = place.open().await;
        for _ in 0..2 {
            let sequences = accept(&*store, many(5)).await;
            for sequence in &sequences {
                assert!(seen.insert(*sequence), "{sequence} was there before");
            }
            let done = sequences.into_iter().map(Settled::Done).collect();
            store.settle(done).await.expect("settled");
            assert_eq!(waiting(&*store).await, []);
        }
        store.close().await.expect("closed");
    }
}

async fn calls_of_nothing(place: &dyn Place) {
    let store = place.open().await;
    assert_eq!(store.accept(vec![]).await, Ok(vec![]));
    assert_eq!(store.settle(vec![]).await, Ok(()));
    assert_eq!(store.redrive(vec![]).await, Ok(vec![]));
    assert_eq!(store.purge_letters(vec![]).await, Ok(vec![]));
    assert_eq!(store.read(&[]).await, Ok(vec![]));
    assert_eq!(accept(&*store, many(1)).await.len(), 1);
}

async fn pages(place: &dyn Place) {
    let store = place.open().await;
    let all = accept(&*store, many(100)).await;
    let mut paged = Vec::new();
    let mut from = 0;
    loop {
        let page = store.scan(from, 7, usize::MAX).await.expect("read");
        assert!(page.len() <= 7);
        let Some(last) = page.last() else { break };
        from = last.sequence + 1;
        paged.extend(page.iter().map(|message| message.sequence));
    }
    assert_eq!(paged, all);
    // Zero limits.
    assert_eq!(store.scan(0, 0, usize::MAX).await, Ok(vec![]));
    assert_eq!(store.scan(0, 10, 0).await.expect("read").len(), 1);
    assert_eq!(store.scan(u64::MAX, 10, 10).await, Ok(vec![]));
    // A message larger than the limit is handed over alone.
    let large = accept(&*store, vec![NewMessage::new("large", vec![0; 1 << 20])]).await[0];
    let page = store.scan(large, 10, 1_000).await.expect("read");
    assert_eq!(page.len(), 1);
    let page = store.scan(all[0], 100, 200).await.expect("read");
    assert!((2..20).contains(&page.len()), "{}", page.len());
}

async fn concurrent_calls(place: &dyn Place) {
    let store = place.open().await;
    let mut tasks = Vec::new();
    for task in 0..8_usize {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let mut sequences = Vec::new();
            for n in 0..20 {
                let key = format!("task-{task}");
                sequences.extend(accept(&*store, vec![message(&key, &n.to_string()); 2]).await);
            }
            sequences
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        let sequences = task.await.expect("no panic");
        assert!(
            sequences.is_sorted_by(|a, b| a < b),
            "each task's calls are in order"
        );
        all.extend(sequences);
    }
    all.sort_unstable();
    assert_eq!(waiting(&*store).await, all);
    let mut next = HashMap::new();
    for message in store.scan(0, usize::MAX, usize::MAX).await.expect("read") {
        let next = next.entry(message.key).or_insert(0);
        assert_eq!(message.payload, (*next / 2).to_string());
        *next += 1;
    }
}

async fn settled_twice(place: &dyn Place) {
    let store = place.open().await;
    let all = accept(&*store, many(6)).await;
    let done = vec![
        Settled::Done(all[1]),
        dead(all[2], 3, "no"),
        Settled::Done(all[1]),
    ];
    for _ in 0..2 {
        store.settle(done.clone()).await.expect("settled");
        assert_eq!(waiting(&*store).await, [all[0], all[3], all[4], all[5]]);
    }
    // A letter is not done, and a done message is not a letter.
    let others = vec![
        Settled::Done(all[2]),
        dead(all[1], 1, ""),
        dead(all[2], 9, ""),
    ];
    store.settle(others).await.expect("settled");
    let letters = store.letters(0, 10).await.expect("read");
    assert_eq!(letters.len(), 1);
    assert_eq!(
        (letters[0].message.sequence, letters[0].attempts),
        (all[2], 3)
    );
    let strangers = vec![
        Settled::Done(0),
        Settled::Done(u64::MAX),
        dead(77_777, 1, ""),
    ];
    store.settle(strangers).await.expect("settled");
    assert_eq!(waiting(&*store).await.len(), 4);
}

async fn duplicates_by_id(place: &dyn Place) {
    let store = place.open().await;
    let first = accept(&*store, vec![message("a", "1").id("one")]).await[0];
    let again = store.accept(vec![
        message("b", "2").id("one"),
        message("b", "3").id("two"),
    ]);
    let again = again.await.expect("accepted");
    assert_eq!(again[0], Accepted::Duplicate(first));
    assert!(!again[1].is_duplicate());
    assert_eq!(waiting(&*store).await.len(), 2);
    // Also when it is done, and when the store was opened again.
    store
        .settle(vec![Settled::Done(first)])
        .await
        .expect("settled");
    store.close().await.expect("closed");
    let store = place.open().await;
    let again = store.accept(vec![message("a", "1").id("one")]).await;
    assert_eq!(again, Ok(vec![Accepted::Duplicate(first)]));
    assert_eq!(waiting(&*store).await, [first + 1]);
}

async fn duplicates_by_version(place: &dyn Place) {
    let store = place.open().await;
    let first = accept(&*store, vec![message("a", "1").version(1)]).await[0];
    let others = vec![
        message("a", "1").version(1),
        message("a", "2").version(2),
        message("b", "1").version(1),
        // Neither the id nor the version alone is new.
        message("a", "3").version(2).id("x"),
        message("a", "4").version(3).id("y"),
        message("c", "5").version(9).id("y"),
    ];
    let accepted = store.accept(others).await.expect("accepted");
    let duplicates = accepted.iter().map(|accepted| accepted.is_duplicate());
    assert_eq!(
        Vec::from_iter(duplicates),
        [true, false, false, true, false, true]
    );
    assert_eq!(accepted[0].sequence(), first);
    assert_eq!(accepted[3].sequence(), accepted[1].sequence());
}

async fn duplicates_in_one_call(place: &dyn Place) {
    let store = place.open().await;
    let twice = vec![message("a", "1").id("one"), message("a", "1").id("one")];
    let accepted = store.accept(twice).await.expect("accepted");
    assert_eq!(accepted[1], Accepted::Duplicate(accepted[0].sequence()));
    // Without an id, the same message counts as another one.
    assert_eq!(accept(&*store, vec![message("a", "1"); 2]).await.len(), 2);
    assert_eq!(waiting(&*store).await.len(), 3);
}

async fn beyond_the_limits(place: &dyn Place) {
    let store = place.open().await;
    for message in [
        NewMessage::new(vec![0; 1 << 20], ""),
        NewMessage::new("", vec![0; 64 << 20]),
        message("a", "").header("large", vec![0; 2 << 20]),
        message("a", "").id(""),
        message("a", "").id(vec![0; 257]),
    ] {
        let both = vec![message.clone(), NewMessage::new("fits", "")];
        match store.accept(both.clone()).await {
            Err(AcceptError::Limit(_, back)) => assert!(back == both, "they come back"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(waiting(&*store).await, []);
}

async fn letters(place: &dyn Place) {
    let store = place.open().await;
    let message = message("a", "1").id("one").header("h", "v");
    let all = accept(&*store, vec![message.clone(); 1]).await;
    let all = [all, accept(&*store, many(9)).await].concat();
    let settled = all
        .iter()
        .map(|sequence| dead(*sequence, 3, "out of paper"));
    store.settle(settled.collect()).await.expect("settled");
    assert_eq!(waiting(&*store).await, []);
    let letter = store
        .letter(all[0])
        .await
        .expect("read")
        .expect("it is one");
    assert_eq!((letter.attempts, letter.kind), (3, LetterKind::Failed));
    assert_eq!(letter.error, "out of paper");
    assert!(letter.dead_lettered_at >= letter.message.accepted_at);
    assert_eq!(letter.message.into_new(), message);
    let page = |letters: Vec<Letter>| -> Vec<u64> {
        letters
            .into_iter()
            .map(|letter| letter.message.sequence)
            .collect()
    };
    assert_eq!(page(store.letters(0, 4).await.expect("read")), all[..4]);
    assert_eq!(
        page(store.letters(all[3], 100).await.expect("read")),
        all[4..]
    );
    assert_eq!(page(store.letters(0, 0).await.expect("read")), []);
    assert_eq!(page(store.letters(u64::MAX, 10).await.expect("read")), []);
    let stats = store.stats().await.expect("read");
    assert_eq!((stats.waiting, stats.letters), (0, 10));
    assert!(stats.letters_bytes > 0);
    // It is known, though it does not wait.
    let again = store.accept(vec![message]).await;
    assert_eq!(again, Ok(vec![Accepted::Duplicate(all[0])]));
}

async fn redriven_letters_keep_their_place(place: &dyn Place) {
    let store = place.open().await;
    let all = accept(&*store, many(10)).await;
    let settled = vec![dead(all[2], 3, "no"), dead(all[5], 3, "no")];
    store.settle(settled).await.expect("settled");
    let before = store.tail().borrow().sequence;
    let redriven = store
        .redrive(vec![all[5], 0, all[2], all[2], all[1], 99_999])
        .await;
    assert_eq!(redriven, Ok(vec![all[5], all[2]]));
    assert_eq!(waiting(&*store).await, all);
    assert_eq!(store.letters(0, 10).await, Ok(vec![]));
    assert_eq!(store.tail().borrow().sequence, before);
    let read = store.read(&[all[2]]).await.expect("read").remove(0);
    assert_eq!(read.expect("it waits").into_new(), many(3).remove(2));
    // Once more.
    store
        .settle(vec![dead(all[2], 1, "still no")])
        .await
        .expect("settled");
    let letter = store
        .letter(all[2])
        .await
        .expect("read")
        .expect("it is one");
    assert_eq!((letter.attempts, &letter.error[..]), (1, "still no"));
}

async fn redriven_letters_are_told(place: &dyn Place) {
    let store = place.open().await;
    let mut tail = store.tail();
    let all = accept(&*store, many(4)).await;
    store
        .settle(all.iter().map(|n| dead(*n, 1, "")).collect())
        .await
        .expect("settled");
    tail.mark_unchanged();
    let redrives = tail.borrow().redrives;
    store.redrive(vec![all[1]]).await.expect("redriven");
    store.redrive(vec![all[0], all[3]]).await.expect("redriven");
    assert!(tail.has_changed().expect("the store is open"));
    assert_eq!(tail.borrow_and_update().redrives, redrives + 3);
    assert_eq!(
        store.take_redriven(),
        Redriven::Sequences(vec![all[1], all[0], all[3]])
    );
    assert_eq!(store.take_redriven(), Redriven::Sequences(vec![]));
    store.redrive(vec![all[1], 77_777]).await.expect("redriven");
    assert!(
        !tail.has_changed().expect("the store is open"),
        "none of them was a letter"
    );
}

async fn purged_letters(place: &dyn Place) {
    let store = place.open().await;
    let all = accept(&*store, many(4)).await;
    store
        .settle(vec![dead(all[0], 1, ""), dead(all[1], 1, "")])
        .await
        .expect("settled");
    let purged = store
        .purge_letters(vec![all[1], all[1], all[2], 99_999])
        .await;
    assert_eq!(purged, Ok(vec![all[1]]));
    assert_eq!(store.letter(all[1]).await, Ok(None));
    assert_eq!(store.redrive(vec![all[1]]).await, Ok(vec![]));
    assert_eq!(waiting(&*store).await, all[2..]);
    assert_eq!(store.letters(0, 10).await.expect("read").len(), 1);
}

async fn long_errors_are_cut(place: &dyn Place) {
    let store = place.open().await;
    let all = accept(&*store, many(1)).await;
    let error = "ä".repeat(10_000);
    store
        .settle(vec![dead(all[0], 1, &error)])
        .await
        .expect("settled");
    let letter = store
        .letter(all[0])
        .await
        .expect("read")
        .expect("it is one");
    assert_eq!(letter.error, error[..Letter::MAX_ERROR_BYTES]);
}

async fn versions(place: &dyn Place) {
    let store = place.open().await;
    store.record_version(b"a", 3).await.expect("recorded");
    store.record_version(b"", 0).await.expect("recorded");
    store.record_version(b"a", 5).await.expect("recorded");
    store.record_version(b"a", 4).await.expect("recorded");
    store
        .record_version(b"b", u64::MAX)
        .await
        .expect("recorded");
    store.close().await.expect("closed");
    let store = place.open().await;
    assert_eq!(store.version(b"a").await, Ok(Some(5)));
    assert_eq!(store.version(b"").await, Ok(Some(0)));
    assert_eq!(store.version(b"b").await, Ok(Some(u64::MAX)));
    assert_eq!(store.version(b"c").await, Ok(None));
    assert_eq!(store.stats().await.expect("read").versions, 3);
}

async fn the_tail_moves(place: &dyn Place) {
    let store = place.open().await;
    let mut tail = store.tail();
    let waits = tokio::spawn(async move {
        tail.changed().await.expect("the store is open");
        tail.borrow().sequence
    });
    let all = accept(&*store, many(3)).await;
    assert_eq!(store.tail().borrow().sequence, all[2]);
    assert_eq!(waits.await.expect("no panic"), all[2]);
    store
        .settle(all.into_iter().map(Settled::Done).collect())
        .await
        .expect("settled");
    let last = store.tail().borrow().sequence;
    store.close().await.expect("closed");
    assert_eq!(place.open().await.tail().borrow().sequence, last);
}

async fn closed(place: &dyn Place) {
    let store = place.open().await;
    accept(&*store, many(3)).await;
    store.close().await.expect("closed");
    store.close().await.expect("closed twice");
    match store.accept(many(2)).await {
        Err(AcceptError::Store(StoreError::Closed, back)) => assert_eq!(back, many(2)),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.scan(0, 10, 10).await, Err(StoreError::Closed));
    assert_eq!(
        store.settle(vec![Settled::Done(1)]).await,
        Err(StoreError::Closed)
    );
    assert_eq!(store.redrive(vec![1]).await, Err(StoreError::Closed));
    assert_eq!(store.purge_letters(vec![1]).await, Err(StoreError::Closed));
    assert_eq!(store.record_version(b"a", 1).await, Err(StoreError::Closed));
    assert_eq!(store.version(b"a").await, Err(StoreError::Closed));
    assert!(store.stats().await.is_err());
    // Calls that come before the close are done.
    let store = place.open().await;
    let calls = (0..10).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.accept(many(1)).await })
    });
    let calls = Vec::from_iter(calls);
    tokio::task::yield_now().await;
    store.close().await.expect("closed");
    let mut accepted = 3;
    for call in calls {
        match call.await.expect("no panic") {
            Ok(_) => accepted += 1,
            Err(error) => assert_eq!(error.into_inner(), many(1)),
        }
    }
    assert_eq!(waiting(&*place.open().await).await.len(), accepted);
}

async fn everything_survives_a_restart(place: &dyn Place) {
    let store = place.open().await;
    let all = accept(&*store, many(50)).await;
    store
        .settle(vec![Settled::Done(all[7]), dead(all[9], 2, "no")])
        .await
        .expect("settled");
    let before = store.scan(0, usize::MAX, usize::MAX).await;
    let letters = store.letters(0, 10).await;
    let stats = store.stats().await.expect("read");
    store.close().await.expect("closed");
    let store = place.open().await;
    assert_eq!(store.scan(0, usize::MAX, usize::MAX).await, before);
    assert_eq!(store.letters(0, 10).await, letters);
    let now = store.stats().await.expect("read");
    assert_eq!((now.waiting, now.letters), (48, 1));
    assert_eq!(now.live_bytes, stats.live_bytes);
    store.redrive(vec![all[9]]).await.expect("redriven");
    assert!(accept(&*store, many(1)).await[0] > all[49]);
}

/// A naive model of a store.
#[derive(Default)]
struct Model {
    last: u64,
    waiting: BTreeMap<u64, NewMessage>,
    letters: BTreeMap<u64, (NewMessage, u32)>,
    ids: HashMap<u64, u64>,
}

/// Takes random steps, with a restart now and then. The steps are always the same.
async fn as_a_naive_model(place: &dyn Place) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut model = Model::default();
    let mut store = place.open().await;
    for _ in 0..400 {
        match random.below(20) {
            0..=7 => model.accept(&*store, &mut random).await,
            8..=12 => model.settle(&*store, &mut random).await,
            13..=14 => model.redrive(&*store, &mut random).await,
            15 => model.purge(&*store, &mut random).await,
            16..=18 => model.look(&*store, random.below(model.last + 2)).await,
            _ => {
                store.close().await.expect("closed");
                store = place.open().await;
            }
        }
    }
    model.look(&*store, 0).await;
}

impl Model {
    async fn accept(&mut self, store: &dyn InboxStore, random: &mut Random) {
        let mut messages = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..random.below(6) {
            let size = random.below(3_000) as usize;
            let mut message = NewMessage::new(vec![random.below(5) as u8], vec![1; size]);
            let id = (random.below(3) == 0).then(|| random.below(30));
            if let Some(id) = id {
                message = message.id(id.to_string());
            }
            let known = id.and_then(|id| self.ids.get(&id).copied());
            expected.push(match known {
                Some(sequence) => Accepted::Duplicate(sequence),
                None => {
                    self.last += 1;
                    self.waiting.insert(self.last, message.clone());
                    id.map(|id| self.ids.insert(id, self.last));
                    Accepted::Stored(self.last)
                }
            });
            messages.push(message);
        }
        assert_eq!(store.accept(messages).await, Ok(expected));
    }

    async fn settle(&mut self, store: &dyn InboxStore, random: &mut Random) {
        let mut settled = Vec::new();
        for _ in 0..random.below(6) {
            let sequence = random.below(self.last + 2);
            let attempts = random.below(5) as u32;
            let message = self.waiting.remove(&sequence);
            if random.below(3) > 0 {
                settled.push(Settled::Done(sequence));
                continue;
            }
            settled.push(dead(sequence, attempts, "no"));
            message.map(|message| self.letters.insert(sequence, (message, attempts)));
        }
        store.settle(settled).await.expect("settled");
    }

    async fn redrive(&mut self, store: &dyn InboxStore, random: &mut Random) {
        let sequences = self.some(random);
        let found = sequences.iter().filter(|sequence| {
            let letter = self.letters.remove(sequence);
            letter
                .map(|(message, _)| self.waiting.insert(**sequence, message))
                .is_some()
        });
        let found = Vec::from_iter(found.copied());
        assert_eq!(store.redrive(sequences).await, Ok(found));
    }

    async fn purge(&mut self, store: &dyn InboxStore, random: &mut Random) {
        let sequences = self.some(random);
        let found = sequences
            .iter()
            .filter(|sequence| self.letters.remove(sequence).is_some());
        let found = Vec::from_iter(found.copied());
        assert_eq!(store.purge_letters(sequences).await, Ok(found));
    }

    fn some(&self, random: &mut Random) -> Vec<u64> {
        (0..random.below(4))
            .map(|_| random.below(self.last + 2))
            .collect()
    }

    async fn look(&self, store: &dyn InboxStore, from: u64) {
        let found = store
            .scan(from, usize::MAX, usize::MAX)
            .await
            .expect("read");
        let found = found.into_iter().map(|m| (m.sequence, m.into_new()));
        let expected = self.waiting.range(from..).map(|(n, m)| (*n, m.clone()));
        assert!(found.eq(expected), "messages from {from}");
        let found = store.letters(from, usize::MAX).await.expect("read");
        let found = found
            .into_iter()
            .map(|l| (l.message.sequence, (l.attempts, l.message)));
        let found = found.map(|(n, (attempts, m))| (n, (m.into_new(), attempts)));
        let expected = self.letters.range(from + 1..).map(|(n, l)| (*n, l.clone()));
        assert!(found.eq(expected), "letters after {from}");
        let stats = store.stats().await.expect("read");
        let counts = (
            self.waiting.len() as u64,
            self.letters.len() as u64,
            self.last,
        );
        assert_eq!((stats.waiting, stats.letters, stats.tail), counts);
        assert_eq!(store.tail().borrow().sequence, self.last);
    }
}

/// Marsaglia's xorshift: the steps need not be random, only many.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
