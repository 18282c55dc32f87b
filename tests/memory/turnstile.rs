//! Those who have left a turnstile cost nothing for long.

use std::pin::Pin;
use std::task::{Context, Waker};

use keylane::Turnstile;

use crate::support::Counting;

const MANY: usize = 20_000;
const ROUNDS: usize = 20;

/// More than a lane, a line and the futures of the few who are there may hold.
const FEW: u64 = 40_000;

fn wait<F: Future + Unpin>(future: &mut F) {
    let polled = Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
}

/// Many come and leave, round after round, while one behind them stays. How many bytes they leave.
fn left_behind<F: Future + Unpin>(turnstile: &Turnstile<u64>, enter: impl Fn(usize) -> F) -> u64 {
    let counting = Counting::begin();
    // What a lane and a map need at all.
    let mut staying = vec![enter(0), enter(1)];
    staying.iter_mut().for_each(wait);
    let before = counting.bytes();
    let places = turnstile.places();
    for _ in 0..ROUNDS {
        let mut leaving: Vec<F> = (0..MANY).map(&enter).collect();
        leaving.iter_mut().for_each(wait);
        staying.push(enter(MANY));
        staying.iter_mut().for_each(wait);
        // From the middle, from both ends.
        while leaving.len() > 2 {
            let middle = leaving.len() / 2;
            drop(leaving.swap_remove(middle));
            drop(leaving.pop());
        }
        drop(leaving);
        assert!(turnstile.places() <= places + staying.len());
    }
    let left = counting.bytes() - before;
    println!("{left} bytes after {} have left", MANY * ROUNDS);
    drop(staying);
    left
}

fn turnstile(capacity: usize) -> Turnstile<u64> {
    let builder = Turnstile::builder()
        .capacity(capacity)
        .lane_capacity(capacity);
    builder.concurrency(1).build().unwrap()
}

#[test]
fn in_a_lane_behind_a_head_that_never_ends() {
    let turnstile = turnstile(1 << 20);
    let _head = turnstile.try_enter(0).unwrap();
    assert!(left_behind(&turnstile, |_| turnstile.try_enter(0).unwrap()) < FEW);
}

#[test]
fn in_the_line_of_the_turns() {
    let turnstile = turnstile(1 << 20);
    let _head = turnstile.try_enter(0).unwrap();
    let keyless = |_| {
        let room = turnstile.try_reserve().unwrap();
        room.enter_keyless().unwrap()
    };
    assert!(left_behind(&turnstile, keyless) < FEW);
}

#[test]
fn in_the_line_for_room() {
    let turnstile = turnstile(1);
    let _head = turnstile.try_enter(0).unwrap();
    assert!(left_behind(&turnstile, |_| turnstile.reserve()) < FEW);
}

/// The many at the front had their turns, and the many who left stood among them.
#[test]
fn behind_those_who_had_their_turns() {
    let turnstile = turnstile(1 << 20);
    let counting = Counting::begin();
    let mut head = turnstile.try_enter(0).unwrap();
    let before = counting.bytes();
    let staying: Vec<_> = (0..MANY).map(|_| turnstile.try_enter(0).unwrap()).collect();
    let leaving: Vec<_> = (1..MANY).map(|_| turnstile.try_enter(0).unwrap()).collect();
    drop(leaving);
    for next in staying {
        drop(std::mem::replace(&mut head, next));
    }
    let left = counting.bytes() - before;
    println!("{left} bytes after {MANY} have left");
    assert!(left < FEW);
    drop(head);
    assert_eq!((turnstile.places(), turnstile.lanes()), (0, 0));
}
