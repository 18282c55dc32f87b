//! The end: of the stream, and of an adapter that is dropped.

use std::rc::Rc;
use std::task::Poll;

use futures::stream::FusedStream;
use futures::{Stream, StreamExt, stream};
use keylane_stream::KeyedStreamExt;

use crate::support::{Scenario, Task, run};

#[test]
fn a_dropped_adapter_drops_its_futures_and_what_is_parked() {
    let token = Rc::new(());
    let elements = vec![(1, Rc::clone(&token)), (1, Rc::clone(&token))];
    let held = Rc::clone(&token);
    let mut answers = stream::iter(elements).map_keyed(
        4,
        |(key, _)| *key,
        |element| {
            let held = Rc::clone(&held);
            Box::pin(async move {
                std::future::pending::<()>().await;
                drop((held, element));
            })
        },
    );
    assert!(Task::new().next(&mut answers).is_pending());
    assert_eq!(Rc::strong_count(&token), 5);
    drop(answers);
    assert_eq!(Rc::strong_count(&token), 2);
}

#[test]
fn a_dropped_adapter_leaves_nothing_in_flight() {
    let scenario = Scenario::of(&[(1, 1), (2, 1), (1, 1)]);
    let mut answers = scenario
        .stream()
        .map_keyed(4, scenario.key(), scenario.start());
    assert!(Task::new().next(&mut answers).is_pending());
    drop(answers);
    assert!(scenario.in_flight().is_empty());
    assert_eq!(scenario.started(), [0, 1]);
}

#[test]
fn after_its_end_it_stays_over_and_does_not_ask_the_source() {
    // A source that is polled after its end is noted as wrong.
    let scenario = Scenario::of(&[(1, 0)]);
    let mut answers = scenario
        .stream()
        .map_keyed(4, scenario.key(), scenario.start());
    let task = Task::new();
    assert!(!answers.is_terminated());
    assert_eq!(task.settle(&mut answers), Poll::Ready(Some(Ok(0))));
    for _ in 0..3 {
        assert_eq!(task.settle(&mut answers), Poll::Ready(None));
        assert!(answers.is_terminated());
    }
    assert_eq!(
        scenario.see(|state| std::mem::take(&mut state.wrong)),
        [""; 0]
    );
}

#[test]
fn it_is_not_over_before_the_last_answer_was_taken() {
    let scenario = Scenario::of(&[(1, 0), (2, 0)]);
    let mut answers = scenario
        .stream()
        .map_keyed(4, scenario.key(), scenario.start());
    let task = Task::new();
    assert_eq!(task.settle(&mut answers), Poll::Ready(Some(Ok(0))));
    assert!(!answers.is_terminated());
    assert_eq!(task.settle(&mut answers), Poll::Ready(Some(Ok(1))));
    assert_eq!(task.settle(&mut answers), Poll::Ready(None));
}

#[test]
fn an_empty_stream() {
    let nothing = stream::empty::<u8>().map_keyed(4, |n| *n, async |n| n);
    assert_eq!(run(nothing.collect::<Vec<_>>()), [0; 0]);
    run(stream::empty::<u8>().for_each_keyed(4, |n| *n, async |_| ()));
}

#[test]
fn the_size_is_known_at_every_step() {
    let scenario = Scenario::of(&(0..30).map(|n| (n % 4, 1)).collect::<Vec<_>>());
    let mut answers = scenario
        .stream()
        .map_keyed(4, scenario.key(), scenario.start())
        .lane_capacity(2);
    let (task, mut left) = (Task::new(), 30);
    loop {
        assert_eq!(answers.size_hint(), (left, Some(left)));
        match task.settle(&mut answers) {
            Poll::Ready(Some(_)) => left -= 1,
            Poll::Ready(None) => break,
            Poll::Pending => scenario.release(*scenario.in_flight().last().unwrap()),
        }
    }
    assert_eq!(left, 0);
}

#[test]
fn debug_shows_numbers_and_nothing_of_the_users() {
    let secrets = stream::iter(["secret"]);
    let mut answers = secrets.map_keyed(4, |s| *s, |s| Box::pin(async move { s }));
    assert!(Task::new().next(&mut answers).is_ready());
    assert_eq!(
        format!("{answers:?}"),
        "MapKeyed { in_flight: 0, parked: 0, outputs: 0, progress: Done, .. }"
    );
}
