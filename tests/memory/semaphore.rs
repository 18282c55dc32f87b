//! Waiters that have left a semaphore do not keep memory for long.

use std::pin::Pin;
use std::task::{Context, Waker};

use keylane_semaphore::{Acquire, KeyedSemaphore};

use crate::support::Counting;

const MANY: usize = 20_000;
const ROUNDS: usize = 20;

/// More than a lane, a line and the few futures that stay may hold.
const FEW: u64 = 40_000;

fn wait<F: Future + Unpin>(future: &mut F) {
    let polled = Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
}

/// Many wait and leave, round after round, while one behind them stays. The bytes that are left.
fn left_behind<F: Future + Unpin>(
    semaphore: &KeyedSemaphore<u64>,
    begin: impl Fn(usize) -> F,
) -> u64 {
    let counting = Counting::begin();
    // The memory of the lane and of the map itself is not counted.
    let mut staying = vec![begin(0), begin(1)];
    staying.iter_mut().for_each(wait);
    let before = counting.bytes();
    let before_all = semaphore.len();
    for _ in 0..ROUNDS {
        let mut leaving: Vec<F> = (0..MANY).map(&begin).collect();
        leaving.iter_mut().for_each(wait);
        staying.push(begin(MANY));
        staying.iter_mut().for_each(wait);
        // From the middle and from the end.
        while leaving.len() > 2 {
            let middle = leaving.len() / 2;
            drop(leaving.swap_remove(middle));
            drop(leaving.pop());
        }
        drop(leaving);
        assert!(semaphore.len() <= before_all + staying.len());
    }
    let left = counting.bytes().saturating_sub(before);
    println!("{left} bytes after {} have left", MANY * ROUNDS);
    drop(staying);
    left
}

fn semaphore(capacity: usize) -> KeyedSemaphore<u64> {
    let builder = KeyedSemaphore::builder()
        .capacity(capacity)
        .lane_capacity(capacity);
    builder.concurrency(1).build().unwrap()
}

fn acquire(semaphore: &KeyedSemaphore<u64>, key: u64) -> Acquire<u64> {
    semaphore.try_reserve().unwrap().acquire(key).unwrap()
}

#[test]
fn in_a_lane_behind_a_head_that_never_ends() {
    let semaphore = semaphore(1 << 20);
    let _head = acquire(&semaphore, 0);
    assert!(left_behind(&semaphore, |_| acquire(&semaphore, 0)) < FEW);
}

#[test]
fn in_the_line_for_a_permit() {
    let semaphore = semaphore(1 << 20);
    let _head = acquire(&semaphore, 0);
    let keyless = |_| {
        let reservation = semaphore.try_reserve().unwrap();
        reservation.acquire_keyless().unwrap()
    };
    assert!(left_behind(&semaphore, keyless) < FEW);
}

#[test]
fn in_the_line_for_capacity() {
    let semaphore = semaphore(1);
    let _head = acquire(&semaphore, 0);
    assert!(left_behind(&semaphore, |_| semaphore.reserve()) < FEW);
}

/// Many are granted one after the other, and as many have left between them.
#[test]
fn between_waiters_that_were_granted() {
    let semaphore = semaphore(1 << 20);
    let counting = Counting::begin();
    let mut head = acquire(&semaphore, 0);
    let before = counting.bytes();
    let staying: Vec<_> = (0..MANY).map(|_| acquire(&semaphore, 0)).collect();
    let leaving: Vec<_> = (1..MANY).map(|_| acquire(&semaphore, 0)).collect();
    drop(leaving);
    for next in staying {
        drop(std::mem::replace(&mut head, next));
    }
    let left = counting.bytes() - before;
    println!("{left} bytes after {MANY} have left");
    assert!(left < FEW);
    drop(head);
    assert_eq!((semaphore.len(), semaphore.lanes()), (0, 0));
}
