//! G1: the handler never runs for two messages of one key at the same time.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keylane::{Dispatcher, Retry};
use keylane_testkit::scenario::{MS, Producer, Random, dispatcher, on_both, paused, scripted};
use keylane_testkit::{Act, Evidence, History, Script};

/// Every way in which a handler can take its time, mixed.
fn busy(history: &History, seed: u64) -> Script {
    Script::new(history).choose(move |cue| {
        match Random::new(seed ^ (cue.id << 8) ^ u64::from(cue.attempt)).below(8) {
            0..3 => Act::ok(),
            3 => Act::ok().yields(1),
            4 => Act::ok().yields(3).sleeps(MS),
            5 => Act::ok().sleeps(2 * MS),
            6 if cue.attempt < 3 => Act::error().yields(1),
            7 if cue.attempt < 3 => Act::panic_at_poll(2),
            _ => Act::ok().yields(2),
        }
    })
}

#[test]
fn one_message_of_a_key_at_a_time() {
    on_both(|| async {
        let history = History::new();
        let orders = dispatcher()
            .concurrency(32)
            .quantum(3)
            .retry(Retry::fixed(MS).max_attempts(3))
            .spawn(scripted(busy(&history, 1)))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for n in 0..600 {
            producer.send(n % 7).await;
        }
        let report = producer.finish(Evidence::new()).await;
        assert_eq!(report.accepted, 600);
    });
}

/// The keys of the tests below, of one type.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Name(Caseless),
    Bytes(Vec<u8>),
    OfTopic(&'static str, u64),
    Colliding(Colliding),
}

/// A key that is equal to another one of other bytes.
#[derive(Clone, Debug)]
struct Caseless(String);

impl PartialEq for Caseless {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Caseless {}

impl Hash for Caseless {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_ascii_lowercase().hash(state);
    }
}

/// All of these are in one bucket.
#[derive(Clone, PartialEq, Eq)]
struct Colliding(u64);

impl Hash for Colliding {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

/// Runs a message of each key at once and counts the most that were in flight together.
async fn most_in_flight(keys: &[Key]) -> usize {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let orders = Dispatcher::builder(|key: &Key| key.clone())
        .spawn(move |_: Key| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(MS).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok::<(), ()>(())
            }
        })
        .unwrap();
    let count = keys.len() as u64;
    for key in keys {
        orders.send(key.clone()).await.unwrap();
    }
    assert_eq!(orders.drain().await.done, count);
    seen.load(Ordering::SeqCst)
}

/// Keys were compared by their bytes, or by the address of an array.
#[test]
fn keys_are_the_same_if_they_are_equal_and_only_then() {
    paused().block_on(async {
        let caseless = ["Ada@x", "ada@X", "ADA@x"].map(|name| Caseless(name.to_owned()));
        assert_eq!(most_in_flight(&caseless.map(Key::Name)).await, 1);
        // Equal arrays at different addresses.
        let arrays = [vec![1_u8, 2, 3], [1, 2, 3].to_vec(), (1..4).collect()];
        assert_eq!(most_in_flight(&arrays.map(Key::Bytes)).await, 1);
        // The same key from two topics is two keys, if the topic is a part of it.
        let topics = ["a", "b", "a", "b"].map(|topic| Key::OfTopic(topic, 7));
        assert_eq!(most_in_flight(&topics).await, 2);
    });
}

/// All keys in one bucket: slower, and nothing else.
#[test]
fn keys_of_the_same_hash_are_different_keys() {
    paused().block_on(async {
        let keys: Vec<_> = (0..60).map(|n| Key::Colliding(Colliding(n % 20))).collect();
        assert_eq!(most_in_flight(&keys).await, 20);
    });
}
