//! Order of each key, order of the answers, and that a key waits for no other key.

use std::task::Poll;

use futures::StreamExt;
use keylane_stream::KeyedStreamExt;

use crate::support::{Scenario, Task};

#[test]
fn answers_come_in_input_order() {
    let scenario = Scenario::of(&[(1, 1), (2, 0), (3, 1), (1, 0)]);
    let (task, mut answers) = (
        Task::new(),
        scenario
            .stream()
            .map_keyed(8, scenario.key(), scenario.start()),
    );
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    scenario.release(2);
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    scenario.release(0);
    assert_eq!(task.all(&mut answers), [Ok(0), Ok(1), Ok(2), Ok(3)]);
    assert!(answers.is_over());
}

#[test]
fn unordered_answers_come_as_they_finish() {
    let scenario = Scenario::of(&[(1, 1), (2, 0), (3, 1), (1, 0)]);
    let mut answers = scenario
        .stream()
        .map_keyed_unordered(8, scenario.key(), scenario.start());
    let task = Task::new();
    assert_eq!(task.all(&mut answers), [Ok(1)]);
    scenario.release(2);
    assert_eq!(task.all(&mut answers), [Ok(2)]);
    scenario.release(0);
    assert_eq!(task.all(&mut answers), [Ok(0), Ok(3)]);
    assert!(answers.is_over());
}

#[test]
fn at_most_one_future_per_key() {
    let scenario = Scenario::of(&[(1, 1), (1, 1), (2, 1), (1, 1)]);
    let mut answers = scenario
        .stream()
        .map_keyed(8, scenario.key(), scenario.start());
    let task = Task::new();
    for in_flight in [[0, 2], [1, 2], [3, 2]] {
        assert!(task.settle(&mut answers).is_pending() || in_flight[0] > 0);
        let mut flying = scenario.in_flight();
        flying.sort_by_key(|n| *n == 2);
        assert_eq!(flying, in_flight);
        scenario.release(in_flight[0]);
    }
    scenario.release(2);
    assert_eq!(task.all(&mut answers).len(), 2);
    assert_eq!(scenario.see(|state| state.most), 2);
}

#[test]
fn a_key_starts_its_next_element_as_soon_as_its_last_finished() {
    // The oldest element is blocked, so no answer can be taken.
    let scenario = Scenario::of(&[(9, 1), (1, 1), (1, 1), (1, 1)]);
    let mut answers = scenario
        .stream()
        .map_keyed(8, scenario.key(), scenario.start());
    let task = Task::new();
    for n in 1..4 {
        assert_eq!(task.settle(&mut answers), Poll::Pending);
        assert_eq!(scenario.in_flight(), [0, n]);
        scenario.release(n);
    }
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    scenario.release(0);
    assert_eq!(task.all(&mut answers), [Ok(0), Ok(1), Ok(2), Ok(3)]);
}

#[test]
fn the_next_of_a_key_starts_in_the_poll_that_answers_for_the_last() {
    let scenario = Scenario::of(&[(1, 1), (1, 1), (2, 1)]);
    let mut answers = scenario
        .stream()
        .map_keyed_unordered(2, scenario.key(), scenario.start());
    let task = Task::new();
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    scenario.release(0);
    // One poll, and not one more.
    assert_eq!(task.next(&mut answers), Poll::Ready(Some(Ok(0))));
    assert_eq!(scenario.in_flight(), [1, 2]);
}

#[test]
fn all_futures_complete_at_once() {
    let scenario = Scenario::of(&(0..40).map(|n| (n % 8, 1)).collect::<Vec<_>>());
    let mut answers = scenario
        .stream()
        .map_keyed(8, scenario.key(), scenario.start());
    let (task, mut all) = (Task::new(), Vec::new());
    loop {
        all.extend(task.all(&mut answers));
        let flying = scenario.in_flight();
        if flying.is_empty() {
            break;
        }
        flying.into_iter().for_each(|n| scenario.release(n));
    }
    assert_eq!(all, (0..40).map(Ok).collect::<Vec<_>>());
    assert_eq!(
        scenario.see(|state| std::mem::take(&mut state.wrong)),
        [""; 0]
    );
}

#[test]
fn a_new_element_meets_a_key_that_was_just_freed() {
    // Two of the key are parked and one is held when the first finishes, and one more comes in then.
    let scenario = Scenario::of(&[(1, 1), (1, 0), (1, 0), (1, 0), (1, 0)]);
    scenario.see(|state| state.fed = 4);
    let mut answers = scenario
        .stream()
        .map_keyed_unordered(4, scenario.key(), scenario.start())
        .lane_capacity(3);
    let task = Task::new();
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    assert_eq!((scenario.started(), scenario.pulled()), (vec![0], 4));
    scenario.feed(1);
    scenario.release(0);
    assert_eq!(task.all(&mut answers), [Ok(0), Ok(1), Ok(2), Ok(3), Ok(4)]);
    assert_eq!(scenario.started(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_key_comes_back_after_its_lane_has_gone() {
    let scenario = Scenario::of(&[(1, 0), (1, 0), (1, 0)]);
    scenario.see(|state| state.fed = 0);
    let mut answers = scenario
        .stream()
        .map_keyed(4, scenario.key(), scenario.start());
    let task = Task::new();
    for n in 0..3 {
        assert_eq!(task.all(&mut answers), []);
        scenario.feed(1);
        assert_eq!(task.all(&mut answers), [Ok(n)]);
    }
}

#[test]
fn the_consumer_stops_asking_and_asks_again() {
    let scenario = Scenario::of(&(0..20).map(|n| (n % 3, 1)).collect::<Vec<_>>());
    let mut answers = scenario
        .stream()
        .map_keyed(4, scenario.key(), scenario.start());
    let (mut task, mut all) = (Task::new(), Vec::new());
    while !answers.is_over() {
        match task.settle(&mut answers) {
            Poll::Ready(answer) => all.extend(answer),
            Poll::Pending => {
                // No task asks while all elements finish; then it is asked from another task.
                let flying = scenario.in_flight();
                flying.into_iter().for_each(|n| scenario.release(n));
                task = Task::new();
            }
        }
    }
    assert_eq!(all, (0..20).map(Ok).collect::<Vec<_>>());
}

#[test]
fn a_dropped_next_loses_nothing() {
    let scenario = Scenario::of(&[(1, 1), (2, 1)]);
    let mut answers = scenario
        .stream()
        .map_keyed(4, scenario.key(), scenario.start());
    let task = Task::new();
    assert!(task.poll(&mut answers.next()).is_pending());
    scenario.release(0);
    scenario.release(1);
    assert_eq!(task.all(&mut answers), [Ok(0), Ok(1)]);
}

/// Whether the stream is over, in a word.
trait IsOver {
    fn is_over(&self) -> bool;
}

impl<S: futures::stream::FusedStream> IsOver for S {
    fn is_over(&self) -> bool {
        self.is_terminated()
    }
}
