//! What is remembered of the rates of keys is bounded, costs no lane, and is gone when it says nothing.

use keylane::{Dispatcher, Rate};

use crate::support::Counting;

/// Keys, each seen once, at full speed.
const KEYS: u64 = 300_000;

/// What may be remembered of a key: its hash and a word, in a table that is at most half empty and
/// doubles, and in a ring.
const BYTES_PER_KEY: u64 = 128;

/// The channel, the lanes and the ready queue of a capacity of 256.
const ENGINE: u64 = 1024 * 1024;

#[test]
fn keys_seen_once_cost_no_lane_and_leave_nothing_behind() {
    let counting = Counting::begin();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let before = counting.bytes();
    runtime.block_on(async {
        let numbers = Dispatcher::builder(|number: &u64| *number)
            .capacity(256)
            .rate_per_key(Rate::per_second(2))
            .spawn(|_: u64| async { Ok::<(), &str>(()) })
            .unwrap();
        let mut most_lanes = 0;
        for key in 0..KEYS {
            numbers.send(key).await.unwrap();
            if key % 1_000 == 0 {
                most_lanes = most_lanes.max(numbers.stats().lanes);
                let bytes = counting.bytes().saturating_sub(before);
                let most = ENGINE + key * BYTES_PER_KEY;
                assert!(bytes <= most, "{bytes} bytes for {key} keys");
            }
        }
        assert!(
            most_lanes <= 256,
            "{most_lanes} lanes for a capacity of 256"
        );
        // Half a second after the last one there is nothing to remember.
        while numbers.stats().lanes > 0 || counting.bytes().saturating_sub(before) > ENGINE {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let report = numbers.drain().await;
        assert_eq!(report.done, KEYS);
    });
}
