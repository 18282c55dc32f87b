//! What is inside has limits, and only the key that reaches one feels it.

use std::task::Poll;

use keylane_stream::KeyedStreamExt;

use crate::support::{Fate, Scenario, Scripted, Task, catch};

fn hot(elements: usize) -> Vec<(u64, u32)> {
    vec![(0, 1); elements]
}

#[test]
fn a_hot_key_fills_its_own_lane_and_no_place_of_others() {
    let mut elements = hot(64);
    elements.extend((1..8).map(|key| (key, 1)));
    let scenario = Scenario::of(&elements);
    let mut answers = scenario
        .stream()
        .map_keyed_unordered(8, scenario.key(), scenario.start());
    assert_eq!(Task::new().settle(&mut answers), Poll::Pending);
    let expected: Vec<usize> = std::iter::once(0).chain(64..71).collect();
    assert_eq!(scenario.in_flight(), expected);
}

#[test]
fn at_its_limit_a_key_is_held_and_nothing_is_pulled_until_it_has_room() {
    let mut elements = hot(20);
    elements.push((1, 1));
    let scenario = Scenario::of(&elements);
    let mut answers = scenario
        .stream()
        .map_keyed_unordered(8, scenario.key(), scenario.start())
        .lane_capacity(4);
    let task = Task::new();
    // One in flight, three behind it, one held.
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    assert_eq!((scenario.in_flight(), scenario.pulled()), (vec![0], 5));
    scenario.release(0);
    assert_eq!(task.all(&mut answers), [Ok(0)]);
    assert_eq!((scenario.in_flight(), scenario.pulled()), (vec![1], 6));
    assert!(format!("{answers:?}").contains("in_flight: 1, parked: 4"));
}

#[test]
fn a_lane_of_one_parks_nothing() {
    let scenario = Scenario::of(&hot(3));
    let mut answers = scenario
        .stream()
        .map_keyed(8, scenario.key(), scenario.start())
        .lane_capacity(1);
    let task = Task::new();
    for n in 0..3 {
        assert_eq!(task.settle(&mut answers), Poll::Pending);
        assert_eq!(scenario.in_flight(), [n]);
        assert_eq!(scenario.pulled(), (n + 2).min(3));
        scenario.release(n);
        assert_eq!(task.next(&mut answers), Poll::Ready(Some(Ok(n))));
    }
}

#[test]
fn a_blocked_oldest_element_cannot_make_it_grow() {
    let mut elements = vec![(0, 1)];
    elements.extend((0..1_000).map(|n| (1 + n % 50, 0)));
    for (capacity, most) in [(Some(30), 30), (None, 4 * 64)] {
        let scenario = Scenario::of(&elements);
        let mut answers = scenario
            .stream()
            .map_keyed(4, scenario.key(), scenario.start());
        if let Some(capacity) = capacity {
            answers = answers.capacity(capacity);
        }
        let task = Task::new();
        assert_eq!(task.settle(&mut answers), Poll::Pending);
        assert_eq!(scenario.pulled(), most);
        scenario.release(0);
        let expected: Vec<_> = (0..1_001).map(Ok).collect();
        assert_eq!(task.all(&mut answers), expected);
    }
}

#[test]
fn panics_behind_a_blocked_oldest_element_cannot_make_it_grow() {
    let mut elements = vec![(0, 1, Fate::Fine)];
    elements.extend((0..500).map(|n| (1 + n % 50, 0, Fate::ThrowsInPoll)));
    elements.push((0, 0, Fate::Fine));
    let scenario = Scenario::with_fates(&elements);
    let mut answers = scenario
        .stream()
        .map_keyed(4, scenario.key(), scenario.start())
        .capacity(30);
    let (task, mut thrown) = (Task::new(), 0);
    let mut take = |answers: &mut _| loop {
        match catch(|| task.settle(answers)) {
            Err(Scripted(_)) => thrown += 1,
            Ok(polled) => return polled,
        }
    };
    assert_eq!(take(&mut answers), Poll::Pending);
    assert_eq!(scenario.pulled(), 30);
    scenario.release(0);
    assert_eq!(take(&mut answers), Poll::Ready(Some(Ok(0))));
    assert_eq!(take(&mut answers), Poll::Ready(Some(Ok(501))));
    assert_eq!(take(&mut answers), Poll::Ready(None));
    assert_eq!(thrown, 500);
}

#[test]
fn never_more_in_flight_than_the_concurrency() {
    let scenario = Scenario::of(&(0..100).map(|key| (key, 1)).collect::<Vec<_>>());
    let mut answers = scenario
        .stream()
        .map_keyed(7, scenario.key(), scenario.start());
    let (task, mut answered) = (Task::new(), 0);
    while answered < 100 {
        answered += task.all(&mut answers).len();
        if let Some(n) = scenario.in_flight().last() {
            scenario.release(*n);
        }
    }
    assert_eq!(scenario.see(|state| state.most), 7);
}

#[test]
fn a_slow_consumer_is_not_run_ahead_of() {
    let scenario = Scenario::of(&(0..100).map(|key| (key, 0)).collect::<Vec<_>>());
    let mut answers = scenario
        .stream()
        .map_keyed_unordered(4, scenario.key(), scenario.start());
    let task = Task::new();
    for n in 0..50 {
        assert_eq!(task.next(&mut answers), Poll::Ready(Some(Ok(n))));
        assert!(scenario.pulled() <= n + 1 + 2 * 4, "{}", scenario.pulled());
    }
}

#[test]
fn a_poll_ends_although_everything_is_always_ready() {
    let scenario = Scenario::of(&vec![(0, 0); 10_000]);
    let mut start = scenario.start();
    let all = scenario
        .stream()
        .for_each_keyed(8, scenario.key(), move |element| {
            let work = start(element);
            async move { _ = work.await }
        });
    let (task, mut all, mut polls) = (Task::new(), Box::pin(all), 0);
    loop {
        let before = scenario.pulled();
        let polled = task.poll(&mut all);
        assert!(scenario.pulled() - before <= 200);
        polls += 1;
        if polled.is_ready() {
            break;
        }
        assert!(task.was_woken());
    }
    assert_eq!(scenario.see(|state| state.finished.len()), 10_000);
    assert!(polls > 10, "{polls} polls");
}

#[test]
#[should_panic(expected = "the concurrency must not be zero")]
fn a_concurrency_of_zero() {
    let scenario = Scenario::of(&[]);
    drop(
        scenario
            .stream()
            .map_keyed(0, scenario.key(), scenario.start()),
    );
}

#[test]
#[should_panic(expected = "the capacity of a lane must not be zero")]
fn a_lane_capacity_of_zero() {
    let scenario = Scenario::of(&[]);
    let answers = scenario
        .stream()
        .map_keyed(1, scenario.key(), scenario.start());
    drop(answers.lane_capacity(0));
}

#[test]
#[should_panic(expected = "the capacity must not be zero")]
fn a_capacity_of_zero() {
    let scenario = Scenario::of(&[]);
    let answers = scenario
        .stream()
        .map_keyed(1, scenario.key(), scenario.start());
    drop(answers.capacity(0));
}
