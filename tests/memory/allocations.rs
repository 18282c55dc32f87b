//! The FIFO `send` path at its steady state allocates nothing per message.

use std::sync::Arc;

use keylane::Dispatcher;
use keylane_testkit::scenario::threads;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use crate::support::{Counting, one_thread};

const WARM_UP: u64 = 50_000;
const MESSAGES: u64 = 200_000;

/// What is shared by many messages is recycled as a rule, and not always: a block of the channel, for
/// 32 messages, when sender and dispatcher meet in it; a chunk of a lane's backlog, for 64, when more
/// of them are emptied at once than are kept. At its worst that is one allocation for 21 messages.
fn tolerated(messages: u64) -> u64 {
    messages / 21
}

/// Allocations for so many messages of so many keys.
fn allocations(runtime: &Runtime, keys: u64) -> u64 {
    let counting = Counting::begin();
    runtime.block_on(async {
        let numbers = Dispatcher::builder(move |n: &u64| n % keys)
            .capacity(1_024)
            .spawn(|_: u64| async move { Ok::<(), ()>(()) })
            .unwrap();
        for n in 0..WARM_UP {
            numbers.send(n).await.unwrap();
        }
        let before = counting.allocations();
        for n in 0..MESSAGES {
            numbers.send(n).await.unwrap();
        }
        let allocated = counting.allocations() - before;
        println!("{keys} keys: {allocated} allocations for {MESSAGES} messages");
        assert_eq!(numbers.drain().await.done, WARM_UP + MESSAGES);
        allocated
    })
}

#[test]
fn none_per_message_on_one_thread() {
    let runtime = one_thread();
    for keys in [1, 1_000, 1_000_000] {
        assert!(allocations(&runtime, keys) <= tolerated(MESSAGES));
    }
}

#[test]
fn none_per_message_on_two_threads() {
    let runtime = threads();
    for keys in [1, 1_000, 1_000_000] {
        assert!(allocations(&runtime, keys) <= tolerated(MESSAGES));
    }
}

/// 256 deques were kept for all lanes: of 10,000 that fell behind, each took one from the allocator and
/// grew it message by message.
#[test]
fn none_per_message_where_thousands_of_lanes_fill_and_empty() {
    const KEYS: u64 = 10_000;
    const ROUND: u64 = 6 * KEYS;
    let counting = Counting::begin();
    let allocated = one_thread().block_on(async {
        let gate = Arc::new(Semaphore::new(0));
        let at_gate = Arc::clone(&gate);
        let numbers = Dispatcher::builder(|n: &u64| n % KEYS)
            .concurrency(1)
            .spawn(move |n: u64| {
                let gate = Arc::clone(&at_gate);
                async move {
                    if n == 0 {
                        gate.acquire().await.expect("it is not closed").forget();
                    }
                    Ok::<(), ()>(())
                }
            })
            .unwrap();
        let mut allocated = 0;
        for round in 1..=3 {
            let before = counting.allocations();
            for n in 0..ROUND {
                numbers.send(n).await.unwrap();
            }
            gate.add_permits(1);
            while numbers.stats().done < round * ROUND {
                yield_now().await;
            }
            allocated = counting.allocations() - before;
            println!("round {round}: {allocated} allocations for {ROUND} messages");
        }
        allocated
    });
    assert!(allocated <= tolerated(ROUND), "{allocated}");
}
