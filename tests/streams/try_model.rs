//! Random errors in random places, released in random order.

use std::task::Poll;

use keylane::KeyedStreamExt;
use keylane::stream::OnError;
use proptest::prelude::*;

use crate::rig::{Fate, Script, World};
use crate::task::Task;

type Answer = Result<usize, usize>;

fn scripts() -> impl Strategy<Value = Vec<Script>> {
    let fate = prop_oneof![
        12 => Just(Fate::Fine),
        1 => Just(Fate::Fails),
        1 => Just(Fate::FailsInSource),
    ];
    let script =
        (0..8_u64, 0..3_u32, fate).prop_map(|(key, waits, fate)| Script { key, waits, fate });
    proptest::collection::vec(script, 0..60)
}

fn answer_of(n: usize, script: &Script) -> Answer {
    match script.fate {
        Fate::Fine => Ok(n),
        _ => Err(n),
    }
}

/// Polls to the end, and releases somebody whenever nothing moves.
fn finish(
    world: &World,
    picks: &[usize],
    mut poll: impl FnMut(&Task) -> Poll<Option<Answer>>,
) -> Vec<Answer> {
    let (task, mut picks, mut answers) = (Task::new(), picks.iter().cycle(), Vec::new());
    loop {
        match poll(&task) {
            Poll::Ready(Some(answer)) => answers.push(answer),
            Poll::Ready(None) => return answers,
            Poll::Pending => {
                if !task.was_woken() {
                    let flying = world.in_flight();
                    assert!(!flying.is_empty(), "nobody would wake it");
                    let pick = picks.next().unwrap() % flying.len();
                    world.release(flying[pick]);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn errors_stop_or_do_not(
        scripts in scripts(),
        concurrency in 1..=16_usize,
        lane_capacity in 1..6_usize,
        picks in proptest::collection::vec(any::<usize>(), 1..40),
        goes_on in any::<bool>(),
    ) {
        let on_error = if goes_on { OnError::Continue } else { OnError::Stop };
        let all: Vec<Answer> = scripts.iter().enumerate().map(|(n, s)| answer_of(n, s)).collect();
        let first = all.iter().position(Result::is_err);
        let stops_at = first.filter(|_| !goes_on);
        let world = || {
            let world = World::new(scripts.clone());
            world.feed(scripts.len());
            world
        };
        let is_clean = |world: &World| world.see(|state| {
            assert!(state.flying.is_empty() && state.wrong.is_empty(), "{:?}", state.wrong);
        });

        // In input order it does not matter who is ready when.
        let ordered = world();
        let mut stream = ordered
            .try_feed()
            .try_map_keyed(concurrency, ordered.key(), ordered.start())
            .lane_capacity(lane_capacity)
            .on_error(on_error);
        let answers = finish(&ordered, &picks, |task| task.next(&mut stream));
        prop_assert_eq!(&answers, &all[..stops_at.map_or(all.len(), |at| at + 1)]);
        is_clean(&ordered);

        let unordered = world();
        let mut stream = unordered
            .try_feed()
            .try_map_keyed_unordered(concurrency, unordered.key(), unordered.start())
            .lane_capacity(lane_capacity)
            .on_error(on_error);
        let mut answers = finish(&unordered, &picks, |task| task.next(&mut stream));
        is_clean(&unordered);
        if stops_at.is_some() {
            let errors = answers.iter().filter(|answer| answer.is_err()).count();
            prop_assert!(errors == 1 && answers.last().unwrap().is_err());
            prop_assert!(answers.iter().all(|answer| all.contains(answer)));
        } else {
            answers.sort_by_key(|answer| answer.unwrap_or_else(|n| n));
            prop_assert_eq!(&answers, &all);
        }

        let done = world();
        let mut start = done.start();
        let mut outcome = Ok(());
        let mut future = done
            .try_feed()
            .try_for_each_keyed(concurrency, done.key(), move |element| {
                let work = start(element);
                Box::pin(async move { work.await.map(|_| ()) })
            })
            .lane_capacity(lane_capacity)
            .on_error(on_error);
        finish(&done, &picks, |task| task.poll(&mut future).map(|done| {
            outcome = done;
            None
        }));
        is_clean(&done);
        prop_assert_eq!(outcome.is_err(), first.is_some());
        if stops_at.is_none() {
            let started = scripts.iter().filter(|s| s.fate != Fate::FailsInSource).count();
            prop_assert_eq!(done.started().len(), started);
        }
    }
}
