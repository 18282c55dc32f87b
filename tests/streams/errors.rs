//! The `try_` forms: what an error does to the others.

use std::task::Poll;

use futures::stream::FusedStream;
use futures::{StreamExt, TryStreamExt, stream};
use keylane_stream::{KeyedStreamExt, OnError};

use crate::support::{Fate, Scenario, Task, run};

#[test]
fn stop_answers_what_is_before_the_error_and_drops_the_rest() {
    let scenario = Scenario::with_fates(&[
        (1, 1, Fate::Fine),
        (1, 1, Fate::Fine),
        (2, 1, Fate::Fails),
        (3, 1, Fate::Fine),
        (2, 1, Fate::Fine),
        (4, 1, Fate::Fine),
    ]);
    let mut answers = scenario
        .try_feed()
        .try_map_keyed(3, scenario.key(), scenario.start());
    let task = Task::new();
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    assert_eq!(scenario.in_flight(), [0, 2, 3]);
    scenario.release(2);
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    // The third of key 2 does not start, and key 3 is dropped at once.
    assert_eq!(scenario.in_flight(), [0]);
    assert_eq!(scenario.see(|state| state.dropped.clone()), [3]);
    let pulled = scenario.pulled();
    scenario.release(0);
    assert_eq!(task.all(&mut answers), [Ok(0)]);
    // Parked before the error, so it is still started.
    scenario.release(1);
    assert_eq!(task.all(&mut answers), [Ok(1), Err(2)]);
    assert!(answers.is_terminated());
    assert_eq!(scenario.pulled(), pulled);
    assert_eq!(scenario.started(), [0, 2, 3, 1]);
}

#[test]
fn an_earlier_error_ends_a_stream_that_is_stopping() {
    let scenario = Scenario::with_fates(&[
        (1, 2, Fate::Fine),
        (2, 1, Fate::Fails),
        (3, 2, Fate::Fine),
        (4, 1, Fate::Fails),
    ]);
    let mut answers = scenario
        .try_feed()
        .try_map_keyed(8, scenario.key(), scenario.start());
    let task = Task::new();
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    scenario.release(3);
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    assert_eq!(scenario.in_flight(), [0, 1, 2]);
    scenario.release(1);
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    assert_eq!(scenario.in_flight(), [0]);
    scenario.release(0);
    scenario.release(0);
    assert_eq!(task.all(&mut answers), [Ok(0), Err(1)]);
    assert!(answers.is_terminated());
}

#[test]
fn stop_without_order_ends_with_the_error() {
    let scenario = Scenario::with_fates(&[
        (1, 1, Fate::Fine),
        (2, 0, Fate::Fine),
        (3, 1, Fate::Fails),
        (3, 1, Fate::Fine),
    ]);
    let mut answers =
        scenario
            .try_feed()
            .try_map_keyed_unordered(8, scenario.key(), scenario.start());
    let task = Task::new();
    assert_eq!(task.all(&mut answers), [Ok(1)]);
    scenario.release(2);
    assert_eq!(task.all(&mut answers), [Err(2)]);
    assert!(answers.is_terminated());
    assert_eq!(scenario.see(|state| state.dropped.clone()), [0]);
    assert_eq!(scenario.started(), [0, 1, 2]);
}

#[test]
fn go_on_puts_every_error_in_its_place() {
    let fates = [
        Fate::Fine,
        Fate::Fails,
        Fate::FailsInSource,
        Fate::Fine,
        Fate::Fails,
    ];
    let elements = fates.map(|fate| (1, 0, fate));
    let scenario = Scenario::with_fates(&elements);
    let answers = scenario
        .try_feed()
        .try_map_keyed(2, scenario.key(), scenario.start())
        .on_error(OnError::Continue);
    let all: Vec<_> = run(answers.collect());
    assert_eq!(all, [Ok(0), Err(1), Err(2), Ok(3), Err(4)]);
}

#[test]
fn an_error_of_the_source_stops_it_too() {
    let elements = [
        (1, 1, Fate::Fine),
        (1, 0, Fate::FailsInSource),
        (1, 0, Fate::Fine),
    ];
    let scenario = Scenario::with_fates(&elements);
    let mut answers = scenario
        .try_feed()
        .try_map_keyed(8, scenario.key(), scenario.start());
    let task = Task::new();
    assert_eq!(task.settle(&mut answers), Poll::Pending);
    assert_eq!(scenario.pulled(), 2);
    scenario.release(0);
    assert_eq!(task.all(&mut answers), [Ok(0), Err(1)]);

    let scenario = Scenario::with_fates(&elements);
    let all = scenario
        .try_feed()
        .try_map_keyed_unordered(8, scenario.key(), scenario.start());
    assert_eq!(run(all.try_collect::<Vec<_>>()), Err(1));
}

#[test]
fn for_each_stops_with_the_first_error_or_goes_on_to_the_end() {
    let elements = [
        (1, 0, Fate::Fine),
        (1, 0, Fate::Fails),
        (2, 9, Fate::Fine),
        (1, 0, Fate::Fine),
        (1, 0, Fate::Fails),
    ];
    let elements = elements.map(|(key, waits, fate)| (key, waits.min(1), fate));
    let billed = |scenario: &Scenario| {
        let mut start = scenario.start();
        scenario
            .try_feed()
            .try_for_each_keyed(8, scenario.key(), move |element| {
                let work = start(element);
                Box::pin(async move { work.await.map(|_| ()) })
            })
    };
    let (scenario, task) = (Scenario::with_fates(&elements), Task::new());
    let mut stops = billed(&scenario);
    assert_eq!(task.poll(&mut stops), Poll::Ready(Err(1)));
    assert_eq!(scenario.started(), [0, 2, 1]);
    assert!(scenario.in_flight().is_empty());

    let (scenario, task) = (Scenario::with_fates(&elements), Task::new());
    let mut goes_on = billed(&scenario).on_error(OnError::Continue);
    while task.poll(&mut goes_on).is_pending() {
        if !task.was_woken() {
            scenario.release(2);
        }
        if scenario.in_flight().is_empty() {
            assert_eq!(task.poll(&mut goes_on), Poll::Ready(Err(1)));
            break;
        }
    }
    assert_eq!(scenario.see(|state| state.finished.len()), 5);
}

#[test]
fn without_errors_all_is_well() {
    let good = || stream::iter((0..9).map(Ok::<u32, ()>));
    let keep = |n: u32| async move { Ok(n) };
    let all: Result<Vec<_>, _> = run(good().try_map_keyed(2, |n| n % 2, keep).try_collect());
    assert_eq!(all.map(|all| all.len()), Ok(9));
    let done = run(good().try_for_each_keyed(2, |n| n % 2, async |_| Ok(())));
    assert_eq!(done, Ok(()));
}

#[test]
fn the_size_of_a_stream_that_may_stop() {
    use futures::Stream;
    let numbers = || stream::iter((0..9).map(Ok::<u32, ()>));
    let stops = numbers().try_map_keyed(2, |n| *n, async |n| Ok(n));
    assert_eq!(stops.size_hint(), (1, Some(9)));
    let goes_on = stops.on_error(OnError::Continue);
    assert_eq!(goes_on.size_hint(), (9, Some(9)));
}

#[test]
fn endless_errors_of_the_source_keep_no_element_from_finishing() {
    let done = std::cell::Cell::new(false);
    let endless = stream::iter(0_u64..).map(|n| if n == 0 { Ok(n) } else { Err(n) });
    let mut all = endless
        .try_for_each_keyed(
            4,
            |n| *n,
            |_| {
                Box::pin(async {
                    done.set(true);
                    Ok(())
                })
            },
        )
        .on_error(OnError::Continue);
    let task = Task::new();
    for _ in 0..3 {
        assert!(task.poll(&mut all).is_pending());
        assert!(task.was_woken());
    }
    assert!(done.get());
}
