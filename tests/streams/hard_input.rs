//! Sources, keys and consumers that do what they should not, or what they rarely do.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::task::Poll;

use futures::stream::FusedStream;
use futures::{Stream, stream};
use keylane_stream::{KeyedStreamExt, OnError};

use crate::support::{Scenario, Task};

/// Equal to no key while it lies, not even to itself.
#[derive(Clone)]
struct Liar {
    key: u64,
    lies: Rc<Cell<bool>>,
}

impl PartialEq for Liar {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && !(self.key == 0 && self.lies.get())
    }
}

impl Eq for Liar {}

impl Hash for Liar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// Polls until it is over, at most so often. The answers, and how many panics there were.
fn take_all<S: Stream + FusedStream + Unpin>(task: &Task, all: &mut S) -> (Vec<S::Item>, usize) {
    let (mut answers, mut panics) = (Vec::new(), 0);
    for _ in 0..1_000 {
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| task.settle(all)));
        match polled {
            Ok(Poll::Ready(Some(answer))) => answers.push(answer),
            Ok(Poll::Ready(None)) => {
                assert!(all.is_terminated());
                return (answers, panics);
            }
            Ok(Poll::Pending) => panic!("it would not be polled again"),
            Err(_) => panics += 1,
        }
    }
    panic!("it does not end");
}

#[test]
fn a_key_that_is_not_equal_to_itself_wedges_no_other() {
    // Four of the liar, of which three are parked when it begins to lie; then many others.
    let elements = |lies: &Rc<Cell<bool>>| {
        let liar = (0..4).map(|_| 0);
        let lies = Rc::clone(lies);
        let others = (1..60).inspect(move |_| lies.set(true));
        stream::iter(liar.chain(others))
    };
    let key = |lies: &Rc<Cell<bool>>| {
        let lies = Rc::clone(lies);
        move |key: &u64| Liar {
            key: *key,
            lies: Rc::clone(&lies),
        }
    };
    let task = Task::new();
    for capacity in [6, 100] {
        let lies = Rc::default();
        let mut ordered = elements(&lies)
            .map_keyed(4, key(&lies), |n| Box::pin(async move { n }))
            .capacity(capacity);
        let (answers, panics) = take_all(&task, &mut ordered);
        assert_eq!(answers[0], 0, "it had finished");
        assert!(answers.is_sorted() && panics == 1, "{answers:?} {panics}");

        let lies = Rc::default();
        let mut unordered = elements(&lies)
            .map_keyed_unordered(4, key(&lies), |n| Box::pin(async move { n }))
            .capacity(capacity);
        let (answers, panics) = take_all(&task, &mut unordered);
        assert!(answers.contains(&0) && panics == 1, "{answers:?} {panics}");
    }
}

#[test]
fn it_may_move_to_another_task_between_polls() {
    let scenario =
        Scenario::new(Scenario::of(&[(1, 1), (2, 1)]).see(|state| state.scripts.clone()));
    scenario.feed(1);
    let mut answers = scenario
        .stream()
        .map_keyed(4, scenario.key(), scenario.start());
    let [one, other] = [Task::new(), Task::new()];
    assert!(one.settle(&mut answers).is_pending());
    assert!(other.settle(&mut answers).is_pending());
    scenario.release(0);
    assert!(other.was_woken() && !one.was_woken());
    assert_eq!(other.settle(&mut answers), Poll::Ready(Some(Ok(0))));
    assert!(one.settle(&mut answers).is_pending());
    scenario.feed(1);
    assert!(one.was_woken() && !other.was_woken());
    assert!(one.settle(&mut answers).is_pending());
    scenario.release(1);
    assert_eq!(one.settle(&mut answers), Poll::Ready(Some(Ok(1))));
    assert_eq!(one.settle(&mut answers), Poll::Ready(None));
}

#[test]
fn a_source_that_goes_on_after_its_end_is_not_heard() {
    let mut n = 0;
    let source = stream::poll_fn(move |_| {
        n += 1;
        Poll::Ready((n != 3).then_some(n))
    });
    let task = Task::new();
    let mut answers = source.map_keyed(4, |n| n % 2, |n| Box::pin(async move { n }));
    assert_eq!(task.all(&mut answers), [1, 2]);
    assert_eq!(task.settle(&mut answers), Poll::Ready(None));
}

#[test]
fn limits_may_be_as_large_and_as_unlike_as_numbers_are() {
    for (concurrency, capacity, lane) in [
        (usize::MAX, 1, 1),
        (usize::MAX, usize::MAX, usize::MAX),
        (1, usize::MAX, 1),
        (64, 2, usize::MAX),
        (1, 1, 1),
    ] {
        let elements: Vec<_> = (0..300).map(|n| (n % 7, 0)).collect();
        let scenario = Scenario::of(&elements);
        let mut answers = scenario
            .stream()
            .map_keyed(concurrency, scenario.key(), scenario.start())
            .capacity(capacity)
            .lane_capacity(lane);
        let expected: Vec<_> = (0..300).map(Ok).collect();
        assert_eq!(Task::new().all(&mut answers), expected);
        assert!(scenario.see(|state| state.most) <= concurrency.min(capacity));
        assert_eq!(
            scenario.see(|state| std::mem::take(&mut state.wrong)),
            [""; 0]
        );
    }
}

/// Throws in its drop.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            crate::support::throw(7);
        }
    }
}

#[test]
fn what_an_error_drops_may_throw_and_the_error_comes_out() {
    let elements = stream::iter((0..5).map(Ok::<u8, u8>));
    let work = |n: u8| {
        Box::pin(async move {
            let bomb = (n > 0).then(|| Bomb);
            if n > 0 {
                std::future::pending::<()>().await;
            }
            drop(bomb);
            Err::<(), u8>(n)
        })
    };
    let task = Task::new();
    let mut unordered = elements.try_map_keyed_unordered(8, |n| *n, work);
    assert_eq!(task.settle(&mut unordered), Poll::Ready(Some(Err(0))));
    assert_eq!(task.settle(&mut unordered), Poll::Ready(None));
    let elements = stream::iter((0..5).map(Ok::<u8, u8>));
    let mut ordered = elements
        .try_map_keyed(8, |n| *n, work)
        .on_error(OnError::Stop);
    assert_eq!(task.settle(&mut ordered), Poll::Ready(Some(Err(0))));
    assert_eq!(task.settle(&mut ordered), Poll::Ready(None));
    assert!(ordered.is_terminated());
}
