//! A panic goes to the consumer, and the adapter stays whole.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::task::Poll;

use futures::stream::FusedStream;
use futures::{Stream, stream};
use keylane_stream::KeyedStreamExt;

use crate::support::{Fate, Scenario, Scripted, Task, catch, throw};

/// Asks as long as there is anything to be had: answers, and what was thrown.
fn take<S>(stream: &mut S) -> (Vec<S::Item>, Vec<usize>)
where
    S: Stream + FusedStream + Unpin,
{
    let task = Task::new();
    let (mut answers, mut thrown) = (Vec::new(), Vec::new());
    loop {
        match catch(|| task.settle(stream)) {
            Ok(Poll::Ready(Some(answer))) => answers.push(answer),
            Ok(Poll::Ready(None) | Poll::Pending) => return (answers, thrown),
            Err(Scripted(n)) => thrown.push(n),
        }
    }
}

fn goes_on(fate: Fate, waits: u32) {
    let elements = [
        (1, 0, Fate::Fine),
        (1, waits, fate),
        (2, 0, Fate::Fine),
        (1, 0, Fate::Fine),
        (1, 0, Fate::Fine),
    ];
    let scenario = Scenario::with_fates(&elements);
    let mut answers = scenario
        .stream()
        .map_keyed(4, scenario.key(), scenario.start());
    let (mut all, mut thrown) = take(&mut answers);
    if waits > 0 {
        scenario.release(1);
        let (more, threw) = take(&mut answers);
        all.extend(more);
        thrown.extend(threw);
    }
    assert_eq!((all, thrown), (vec![Ok(0), Ok(2), Ok(3), Ok(4)], vec![1]));
    assert!(answers.is_terminated());
    assert_eq!(
        scenario.see(|state| std::mem::take(&mut state.wrong)),
        [""; 0]
    );
}

#[test]
fn a_panic_in_key_costs_its_element_alone() {
    goes_on(Fate::ThrowsInKey, 0);
}

#[test]
fn a_panic_in_f_costs_its_element_alone() {
    goes_on(Fate::ThrowsInF, 0);
}

#[test]
fn a_panic_in_the_first_poll_costs_its_element_alone() {
    goes_on(Fate::ThrowsInPoll, 0);
}

#[test]
fn a_panic_in_a_later_poll_costs_its_element_alone() {
    goes_on(Fate::ThrowsInPoll, 1);
}

#[test]
fn many_panics_of_one_key_come_one_after_the_other() {
    let mut elements = vec![(1, 1, Fate::Fine)];
    elements.extend((0..10).map(|n| {
        let fate = [Fate::ThrowsInF, Fate::ThrowsInPoll][n % 2];
        (1, 0, fate)
    }));
    elements.push((1, 0, Fate::Fine));
    let scenario = Scenario::with_fates(&elements);
    let mut answers = scenario
        .stream()
        .map_keyed(1, scenario.key(), scenario.start());
    assert_eq!(take(&mut answers), (vec![], vec![]));
    scenario.release(0);
    let expected = (vec![Ok(0), Ok(11)], (1..11).collect());
    assert_eq!(take(&mut answers), expected);
}

#[test]
fn a_panic_in_the_source_costs_nothing_that_is_inside() {
    let mut n = 0;
    let source = stream::poll_fn(move |_| {
        n += 1;
        match n {
            2 => throw(n),
            4 => Poll::Ready(None),
            _ => Poll::Ready(Some(n)),
        }
    });
    let mut answers = source.map_keyed(4, |_| (), |n| Box::pin(async move { n }));
    assert_eq!(take(&mut answers), (vec![1, 3], vec![2]));
}

#[test]
fn for_each_goes_on_after_a_panic() {
    let scenario = Scenario::with_fates(&[
        (1, 0, Fate::Fine),
        (1, 0, Fate::ThrowsInPoll),
        (1, 0, Fate::ThrowsInF),
        (1, 0, Fate::Fine),
    ]);
    let mut start = scenario.start();
    let mut all = Box::pin(
        scenario
            .stream()
            .for_each_keyed(4, scenario.key(), move |e| {
                let work = start(e);
                async move { _ = work.await }
            }),
    );
    let (task, mut thrown) = (Task::new(), Vec::new());
    loop {
        match catch(|| task.poll(&mut all)) {
            Ok(Poll::Ready(())) => break,
            Ok(Poll::Pending) => assert!(task.was_woken()),
            Err(Scripted(n)) => thrown.push(n),
        }
    }
    assert_eq!(thrown, [1, 2]);
    assert_eq!(scenario.see(|state| state.finished.clone()), [0, 3]);
}

/// A key whose `Eq` throws at a chosen comparison, once.
#[derive(Clone)]
struct Touchy {
    key: u64,
    fuse: Rc<Cell<usize>>,
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        let left = self.fuse.get();
        self.fuse.set(left.saturating_sub(1));
        if left == 1 {
            throw(99);
        }
        self.key == other.key
    }
}

impl Eq for Touchy {}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

#[test]
fn a_key_that_throws_when_it_is_compared_wedges_no_other() {
    // One of these comparisons lets an element in, another one moves a lane on.
    let mut costs = Vec::new();
    for at in 1..30 {
        let scenario = Scenario::of(&[(1, 0), (1, 0), (1, 0), (1, 0)]);
        let fuse = Rc::new(Cell::new(at));
        let keys = Rc::clone(&fuse);
        let mut key = scenario.key();
        let mut answers = scenario
            .stream()
            .map_keyed(
                4,
                move |element| Touchy {
                    key: key(element),
                    fuse: Rc::clone(&keys),
                },
                scenario.start(),
            )
            .lane_capacity(2);
        let (all, thrown) = take(&mut answers);
        assert!(answers.is_terminated(), "at comparison {at}");
        assert!(all.is_sorted() && all.len() >= 4 - thrown.len());
        if fuse.get() == 0 {
            assert_eq!(thrown, [99]);
            costs.push(4 - all.len());
        }
    }
    // An element that was being compared is gone; one that has finished is not.
    assert!(costs.contains(&0) && costs.contains(&1), "{costs:?}");
}

/// Throws in its drop.
struct Bomb(Rc<Cell<usize>>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
        throw(7);
    }
}

#[test]
fn a_future_that_throws_in_its_drop_changes_nothing() {
    let drops = Rc::new(Cell::new(0));
    let mut answers = stream::iter(0..6).map_keyed(
        2,
        |n| n % 2,
        |n| {
            let bomb = Bomb(Rc::clone(&drops));
            let mut polled = false;
            Box::pin(std::future::poll_fn(move |cx| {
                let _bomb = &bomb;
                if std::mem::replace(&mut polled, true) || n < 4 {
                    return Poll::Ready(n);
                }
                let _ = cx;
                Poll::Pending
            }))
        },
    );
    assert_eq!(take(&mut answers), (vec![0, 1, 2, 3], vec![]));
    // Two more are in flight, and their adapter is dropped.
    drop(answers);
    assert_eq!(drops.get(), 6);
}

#[test]
fn parked_elements_that_throw_in_their_drop_are_all_dropped() {
    let drops = Rc::new(Cell::new(0));
    let bombs = || Bomb(Rc::clone(&drops));
    let elements: Vec<_> = (0..5).map(|_| bombs()).collect();
    let mut answers = stream::iter(elements).map_keyed(
        4,
        |_| (),
        |bomb| {
            Box::pin(async move {
                std::future::pending::<()>().await;
                drop(bomb);
            })
        },
    );
    assert!(Task::new().next(&mut answers).is_pending());
    drop(answers);
    assert_eq!(drops.get(), 5);
}
