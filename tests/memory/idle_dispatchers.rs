//! What a dispatcher costs that has nothing to do: few bytes, and no time.

use std::time::Duration;

use keylane::Dispatcher;
use keylane_testkit::scenario::paused;
use tokio::runtime::Handle;

use crate::support::Counting;

const MANY: usize = 1_000;

/// Most bytes of a dispatcher that was never used. The largest parts are the engine itself, the
/// first block of its channel, the shards of its lanes and the future of its router.
const UNUSED: u64 = 10 * 1_024;

/// Most bytes of one that has handled a message, whose handler waited. An idle runner comes to
/// that, a table of handlers that wait, and small queues.
const USED: u64 = 15 * 1_024;

/// Most tasks of such a dispatcher: the router, and the runners that stay idle for the next message.
/// How many of them its load has recruited is its own affair.
const FEW_TASKS: usize = 4;

/// The clock of this runtime goes on by itself to the next timer, if there is one.
const A_WHILE: Duration = Duration::from_secs(10);
const AN_HOUR: Duration = Duration::from_secs(3_600);

/// A sleep of an hour is some turns of the runtime by itself. Were all the dispatchers to tick
/// together, each second, they would be more than a thousand.
const FEW_TURNS: u64 = 16;

type Numbers = Dispatcher<u64, u64, (), &'static str>;

fn spawn() -> Numbers {
    Dispatcher::builder(|n: &u64| *n)
        // By default it is a multiple of the cores, at 128 bytes a shard.
        .shards(8)
        .spawn(|n: u64| async move {
            tokio::time::sleep(Duration::from_millis(n)).await;
            Ok(())
        })
        .unwrap()
}

/// Starts many dispatchers and leaves them alone. Returns the bytes of each, and its tasks, which are
/// the same for all.
fn at_rest(prepare: impl AsyncFn(&Numbers)) -> (u64, usize) {
    let counting = Counting::begin();
    paused().block_on(async {
        let metrics = Handle::current().metrics();
        let mut all = Vec::with_capacity(MANY);
        let before = counting.bytes();
        for _ in 0..MANY {
            let numbers = spawn();
            prepare(&numbers).await;
            all.push(numbers);
        }
        tokio::time::sleep(A_WHILE).await;
        let bytes = (counting.bytes() - before) / MANY as u64;
        let tasks = metrics.num_alive_tasks();
        println!("{bytes} bytes for each of {MANY} dispatchers, {tasks} tasks in all");
        assert!(tasks.is_multiple_of(MANY), "{tasks}");

        // No task of theirs is woken while time passes, because none waits for the time.
        let turns = metrics.worker_park_count(0);
        tokio::time::sleep(AN_HOUR).await;
        let turns = metrics.worker_park_count(0) - turns;
        println!("{turns} turns of the runtime in an hour");
        assert!(turns <= FEW_TURNS, "{turns}");

        // They were asleep, and not dead.
        for numbers in all {
            numbers.send(1).await.unwrap();
            assert!(numbers.drain().await.done > 0);
        }
        (bytes, tasks / MANY)
    })
}

#[test]
fn one_that_was_never_used() {
    let (bytes, tasks) = at_rest(async |_| {});
    assert_eq!(tasks, 1, "the router");
    assert!(bytes <= UNUSED, "{bytes}");
}

#[test]
fn one_that_has_handled_a_message() {
    let handle = async |numbers: &Numbers| numbers.submit(10).await.unwrap().await.unwrap();
    let (bytes, tasks) = at_rest(handle);
    assert!((1..=FEW_TASKS).contains(&tasks), "{tasks}");
    assert!(bytes <= USED, "{bytes}");
}

/// It has a lane and a message, and waits for nothing but a decision.
#[test]
fn one_with_a_paused_lane() {
    let pause = async |numbers: &Numbers| {
        numbers.lane(&7).pause();
        numbers.send(7).await.unwrap();
        numbers.send(8).await.unwrap();
    };
    let (bytes, tasks) = at_rest(pause);
    assert!((1..=FEW_TASKS).contains(&tasks), "{tasks}");
    assert!(bytes <= USED, "{bytes}");
}
