//! No runtime, no `Send`, no `'static`.

use std::cell::RefCell;
use std::rc::Rc;

use futures::{StreamExt, stream};
use keylane_stream::KeyedStreamExt;

use crate::support::run;

/// Pending once, and wakes itself.
async fn pause() {
    let mut paused = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut paused, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[test]
fn elements_keys_and_futures_need_not_be_send() {
    let names = ["a", "b", "a"].map(Rc::<str>::from);
    let answers = stream::iter(names).map_keyed(8, Rc::clone, |name| async move {
        pause().await;
        name.to_uppercase()
    });
    assert_eq!(run(answers.collect::<Vec<_>>()), ["A", "B", "A"]);
}

#[test]
fn what_is_borrowed_may_be_used() {
    let log = RefCell::new(Vec::new());
    let words = vec!["one".to_owned(), "two".to_owned(), "three".to_owned()];
    let all = stream::iter(&words).for_each_keyed(
        2,
        |word| word.len(),
        |word| {
            let log = &log;
            async move {
                pause().await;
                log.borrow_mut().push(word.as_str());
            }
        },
    );
    run(all);
    let mut log = log.into_inner();
    log.sort_unstable();
    assert_eq!(log, ["one", "three", "two"]);
}

#[test]
fn a_stream_behind_a_reference_or_a_box() {
    let mut numbers = stream::iter(0..10_u32).boxed_local();
    let first: Vec<_> = run((&mut numbers)
        .take(4)
        .map_keyed(2, |n| n % 2, async |n| n)
        .collect());
    let rest: Vec<_> = run(numbers.map_keyed(2, |n| n % 2, async |n| n).collect());
    assert_eq!((first, rest.len()), (vec![0, 1, 2, 3], 6));
}

#[test]
fn a_stream_that_cannot_be_moved() {
    let numbers = stream::unfold(0, |n| async move {
        pause().await;
        (n < 5).then_some((n, n + 1))
    });
    let answers = numbers.map_keyed(2, |n| n % 2, async |n| n);
    assert_eq!(run(answers.collect::<Vec<_>>()), [0, 1, 2, 3, 4]);
}
