//! The FIFO `send` path at its steady state allocates nothing per message.

use keylane::Dispatcher;
use keylane_testkit::scenario::threads;
use tokio::runtime::Runtime;

use crate::support::Counting;

const WARM_UP: u64 = 50_000;
const MESSAGES: u64 = 200_000;

/// What is shared by many messages is recycled as a rule, and not always: a block of the channel, for
/// 32 messages, when sender and dispatcher meet in it; a chunk of a lane's backlog, for 64, when more
/// of them are emptied at once than are kept. At its worst that is one allocation for 21 messages.
const TOLERATED: u64 = MESSAGES / 21;

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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    for keys in [1, 1_000, 1_000_000] {
        assert!(allocations(&runtime, keys) <= TOLERATED);
    }
}

#[test]
fn none_per_message_on_two_threads() {
    let runtime = threads();
    for keys in [1, 1_000, 1_000_000] {
        assert!(allocations(&runtime, keys) <= TOLERATED);
    }
}
