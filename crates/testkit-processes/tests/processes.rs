//! Processes of this test, what they report, and the judge of it.

use testkit_processes::{
    Attempt, Journal, Process, Reader, Step, Story, What, end_with_parent, told_to_stop,
};

/// The variable with the path of the journal of a worker.
const WORKER: &str = "KEYLANE_PROCESSES_WORKER";

/// The worker: this program again.
#[test]
fn worker() {
    let Ok(path) = std::env::var(WORKER) else {
        return;
    };
    Journal::open(path).write('s', &[7, 8]);
    println!("\nskipped\nstarted");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(told_to_stop());
    println!("left");
}

/// A worker that leaves with its parent.
#[test]
fn child() {
    if std::env::var(WORKER).is_ok() {
        end_with_parent();
        println!("\nstarted");
        loop {
            std::thread::park();
        }
    }
}

#[tokio::test]
async fn a_process_is_paused_and_leaves_when_it_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let mut process = Process::start("worker", [(WORKER, &path)]);
    process.wait_for("started").await;
    process.pause().await;
    process.resume();
    let id = process.id();
    process.stop().await;
    let lines = Reader::<2>::open(&path).into_lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!((lines[0].what, lines[0].process), ('s', id));
    assert_eq!(lines[0].numbers, [7, 8]);
}

#[test]
fn a_process_is_killed_while_it_is_paused() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    let mut process = Process::start("child", [(WORKER, "")]);
    process.blocking_wait_for("started");
    runtime.block_on(process.pause());
    process.kill();
    assert_eq!(process.blocking_rest(), [""; 0]);
}

#[tokio::test]
async fn a_process_whose_input_ends_leaves_with_it() {
    let mut process = Process::start("child", [(WORKER, "")]);
    process.wait_for("started").await;
    process.stop().await;
}

#[test]
#[should_panic(expected = "ended before the line `started`")]
fn a_line_that_does_not_come_is_noticed() {
    Process::start("worker", [("NOT_IT", "")]).blocking_wait_for("started");
}

#[test]
fn each_line_is_read_once_and_not_before_it_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let journal = Journal::open(&path);
    let mut reader = Reader::<1>::open(&path);
    assert!(reader.read().is_empty());
    journal.write('s', &[1]);
    assert_eq!(reader.read().len(), 1);
    let half = std::fs::read_to_string(&path).expect("text");
    std::fs::write(&path, format!("{half}e 1 2")).expect("it is written");
    assert!(reader.read().is_empty());
    std::fs::write(&path, format!("{half}e 1 2 3\n")).expect("it is written");
    assert_eq!(reader.read()[0].numbers, [3]);
}

/// Reads a story of one key: worker, step and message in each word, as in `1s1 1d1`.
fn story(text: &str) -> Story {
    let steps = text.split_whitespace().map(|word| {
        let what = match word.get(1..2) {
            Some("s") => What::Start,
            Some("d") => What::Done,
            Some("b") => What::Broken,
            _ => return None,
        };
        Some(Step {
            worker: word[..1].parse().expect("a number"),
            key: 1,
            id: word[2..].parse().expect("a number"),
            what,
        })
    });
    Story::read(steps)
}

/// Where the attempts of these pairs began.
fn places(pairs: impl Iterator<Item = (Attempt, Attempt)>) -> Vec<(usize, usize)> {
    pairs.map(|(other, one)| (other.start, one.start)).collect()
}

#[test]
fn what_is_lost_is_found() {
    let good = story("1s1 1d1 1s2 1b2 2s2 2d2");
    assert_eq!((good.done(), good.lost([1, 2])), (2, vec![]));
    assert!(places(good.overlaps()).is_empty() && places(good.repeats()).is_empty());
    assert!(good.begun_out_of_order(|id| id).is_empty());
    assert!(good.done_out_of_order(|id| id).is_empty());
    assert_eq!(story("1s1 1d1 1s2 1b2").lost([1, 2]), [2]);
}

#[test]
fn messages_out_of_order_are_found() {
    let both = story("1s2 1d2 1s1 1d1 1s3 1d3");
    assert_eq!(both.begun_out_of_order(|id| id), [(2, 1)]);
    assert_eq!(both.done_out_of_order(|id| id), [(2, 1)]);
    let ends = story("1s1 1s2 1d2 1d1");
    assert_eq!(ends.begun_out_of_order(|id| id), []);
    assert_eq!(ends.done_out_of_order(|id| id), [(2, 1)]);
    // Only the first time counts.
    let again = story("1s1 1d1 1s2 1d2 2s1 2d1");
    assert_eq!(again.done_out_of_order(|id| id), []);
}

#[test]
fn attempts_at_once_are_found() {
    assert_eq!(places(story("1s1 2s1 2d1").overlaps()), [(0, 1)]);
    assert_eq!(places(story("1s1 1s2 1d1 1d2").overlaps()), [(0, 1)]);
    // All that have not ended, also after a step that is not about a message.
    let three = story("1s1 x 2s2 2d2 3s3");
    assert_eq!(places(three.overlaps()), [(0, 2), (0, 4)]);
}

#[test]
fn repetitions_are_found() {
    let again = story("1s1 1d1 2s1 2d1 3s1");
    assert_eq!(places(again.repeats()), [(0, 2), (0, 4)]);
    let before = again.before(&again.attempts()[2]).map(|one| one.worker);
    assert_eq!(Vec::from_iter(before), [1, 2]);
    // It was not done yet.
    assert_eq!(places(story("1s1 2s1 1d1 2d1").repeats()), []);
}

#[test]
#[should_panic(expected = "has not begun")]
fn an_end_without_a_beginning_is_an_error() {
    story("1s1 2d1");
}
