//! Dead letters of a list, one by one: read, redriven as they were, purged.

use std::time::{Duration, SystemTime};

use keylane::source::{
    LetterCause, Outcome, RawLetter, RawLetterSink, RawMessage, Source, SourceLetter,
};
use keylane_redis::{ErrorKind, ListKey, ListLetters, ListQueue, Redis};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use testkit_servers::RedisKind;

use crate::direct::{Direct, payloads};
use crate::state::{beside, check_idle};
use crate::support::{builder, connect, new_name, shared};

/// A queue of its own, on a server that other tests use as well.
struct Shop {
    server: std::sync::Arc<testkit_servers::Redis>,
    raw: MultiplexedConnection,
    name: String,
    queue: ListQueue,
    letters: ListLetters,
}

impl Shop {
    async fn new(what: &str, kind: RedisKind) -> Self {
        let server = shared(kind).await;
        let name = new_name(what);
        let builder = builder(&server.url(), &name).key(ListKey::before(b":"));
        let queue = builder.dead_letters().build().unwrap();
        Self {
            raw: connect(&server.url()).await,
            server,
            name,
            letters: ListLetters::new(&queue),
            queue,
        }
    }

    /// Makes this many letters as a sink, and returns their numbers.
    async fn make(&self, count: usize) -> Vec<u64> {
        for number in 0..count {
            let raw = RawMessage::new(format!("{number}")).key("a");
            let letter = RawLetter::new(raw, "no number", "elsewhere");
            self.queue.accept(&letter).await.unwrap();
        }
        let letters = self.letters.list(None, count + 1).await.unwrap();
        letters.into_iter().map(|letter| letter.number).collect()
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut ask = cmd(words[0]);
        ask.arg(&words[1..]);
        ask.query_async(&mut self.raw).await.unwrap()
    }

    /// How many elements wait, and how many letters there are.
    async fn counts(&self) -> (u64, u64) {
        let status = self.queue.status().await.unwrap();
        (status.waiting, status.letters)
    }
}

#[tokio::test]
async fn single_letters_go_back_in_order_and_as_they_were() {
    for kind in RedisKind::ALL {
        let mut shop = Shop::new("single", kind).await;
        let before = SystemTime::now() - Duration::from_secs(60);
        for element in ["a:1", "a:2", "a:3", "a:4"] {
            let _: u64 = shop.ask(&["LPUSH", &shop.name.clone(), element]).await;
        }
        let mut worker = Direct::open(&shop.queue).await;
        let handed = worker.receive_all(4).await;
        for (_, position) in &handed {
            let why = "x".repeat(3_000);
            let letter = SourceLetter::new(position.clone(), 3, LetterCause::TimedOut, why);
            worker.0.dead_letter(letter).await.unwrap();
        }
        worker.settle(&handed, Outcome::DeadLettered).await;
        worker.0.confirm().await.unwrap();

        let letters = shop.letters.clone();
        let all = letters.list(None, 10).await.unwrap();
        let numbers: Vec<u64> = all.iter().map(|letter| letter.number).collect();
        assert_eq!(numbers.len(), 4);
        assert!(numbers.is_sorted(), "{numbers:?}");
        let [one, two, three, four] = numbers[..] else {
            panic!("{numbers:?}");
        };
        let first = &all[0];
        assert_eq!((first.attempts, &*first.cause), (3, "timed out"));
        assert_eq!(first.error, "x".repeat(2_000));
        assert_eq!(first.message, RawMessage::new("a:1").key("a"));
        let at = first.time().unwrap();
        assert!(before < at && at < before + Duration::from_secs(3_600));
        assert_eq!(letters.list(Some(one), 2).await.unwrap(), all[1..3]);
        assert_eq!(letters.list(Some(four), 2).await.unwrap(), []);
        assert_eq!(letters.show(three).await.unwrap().as_ref(), Some(&all[2]));
        for number in [0, 1, three + 1_000_000, u64::MAX] {
            assert_eq!(letters.show(number).await.unwrap(), None);
        }

        assert_eq!(letters.purge(&[two]).await.unwrap(), 1);
        // What is gone does not count, and its neighbours stay: those behind it are still found.
        assert_eq!(letters.redrive(&[two]).await.unwrap(), 0);
        assert_eq!(letters.purge(&[two]).await.unwrap(), 0);
        assert_eq!(letters.list(Some(two), 9).await.unwrap(), all[2..]);
        assert_eq!(letters.redrive(&[four, two, one]).await.unwrap(), 2);
        assert_eq!(letters.list(Some(one), 9).await.unwrap(), all[2..3]);
        assert_eq!(letters.redrive(&[]).await.unwrap(), 0);
        let back = worker.receive_all(2).await;
        assert_eq!(payloads(&back), [b"a:4", b"a:1"], "{kind}");
        assert!(back.iter().all(|(message, _)| message.attempt == 1));
        worker.ack(&back).await;
        worker.0.close().await.unwrap();
        check_idle(&mut shop.raw, &shop.name).await;
        assert_eq!(shop.counts().await, (0, 1));
    }
}

#[tokio::test]
async fn letters_are_found_by_their_numbers_among_many() {
    const LETTERS: usize = 700;
    let mut shop = Shop::new("many", RedisKind::Redis7).await;
    let list = beside(&shop.name, "letters");
    // Another program has put them there: they have no number.
    let _: u64 = shop.ask(&["LPUSH", &list, "plain", "\0kl1 cut off"]).await;
    let numbers = shop.make(LETTERS).await;
    assert_eq!(numbers.len(), LETTERS);
    let mut seen = Vec::new();
    loop {
        let page = shop.letters.list(seen.last().copied(), 64).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|letter| letter.number));
    }
    assert_eq!(seen, numbers);
    let odd: Vec<u64> = numbers.iter().copied().skip(1).step_by(2).collect();
    assert_eq!(shop.letters.redrive(&odd).await.unwrap(), 350);
    for number in &numbers {
        let is_there = shop.letters.show(*number).await.unwrap().is_some();
        assert_eq!(is_there, !odd.contains(number));
    }
    let left = shop.letters.list(None, LETTERS).await.unwrap();
    let payloads = left.iter().map(|letter| letter.message.payload.clone());
    assert!(payloads.eq((0..LETTERS).step_by(2).map(|n| n.to_string())));
    assert_eq!(shop.counts().await, (350, 352));
    let mut worker = Direct::open(&shop.queue).await;
    let back = worker.receive_all(350).await;
    let back = back.iter().map(|(message, _)| message.payload.clone());
    assert!(back.eq((1..LETTERS).step_by(2).map(|n| n.to_string())));
    worker.0.close().await.unwrap();
}

#[tokio::test]
async fn two_operators_at_once_redrive_each_letter_once() {
    const LETTERS: u64 = 400;
    let shop = Shop::new("two", RedisKind::Redis7).await;
    let numbers = shop.make(400).await;
    let (one, other) = tokio::join!(
        async {
            let mut all = 0;
            for number in &numbers {
                all += shop.letters.redrive(&[*number]).await.unwrap();
            }
            all
        },
        async {
            let mut all = 0;
            for numbers in numbers.chunks(7) {
                all += shop.letters.redrive(numbers).await.unwrap();
            }
            all
        }
    );
    assert_eq!((one + other, shop.counts().await), (LETTERS, (LETTERS, 0)));
}

/// What comes between two steps would leave a letter in both lists, or in none.
#[tokio::test]
async fn a_letter_is_moved_as_a_whole_or_not_at_all() {
    for kind in RedisKind::ALL {
        let mut shop = Shop::new("whole", kind).await;
        let numbers = shop.make(1).await;
        let user = new_name("user");
        for right in ["-lrem", "-lpush", "-lindex"] {
            let set = [
                "ACL", "SETUSER", &user, "on", ">secret", "~*", "+@all", right,
            ];
            shop.ask::<()>(&set).await;
            let url = shop.server.url();
            let url = url.replacen("redis://", &format!("redis://{user}:secret@"), 1);
            let queue = ListQueue::builder(&Redis::at(&url).unwrap(), shop.name.clone());
            let letters = ListLetters::new(&queue.build().unwrap());
            let refused = letters.redrive(&numbers).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Denied, "{kind}: {refused}");
            assert!(
                refused.to_string().contains("ACL SETUSER"),
                "{kind}: {refused}"
            );
            assert_eq!(shop.counts().await, (0, 1), "{kind}, {right}");
        }
        // The list is of another type.
        shop.ask::<()>(&["SET", &shop.name.clone(), "text"]).await;
        let refused = shop.letters.redrive(&numbers).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongType, "{kind}: {refused}");
        assert!(shop.letters.show(numbers[0]).await.unwrap().is_some());
    }
}
