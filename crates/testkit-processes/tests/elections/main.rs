//! The judge of elections: it finds what must not be.

use std::time::Duration;

use testkit_processes::Entry;
use testkit_processes::elections::{Fault, Verdict, Write, Written};

/// Reads a journal, a line in each second from 1 on: worker, event, token and number in each word,
/// as in `1i7 1w7/1 1a7/1`. The worker of what the test writes is 0.
fn lines(text: &str) -> Vec<Entry> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let entry = |(at, word): (u64, &str)| {
        let (worker, rest) = word.split_at(1);
        let (what, rest) = rest.split_at(1);
        let mut numbers = [0; 3];
        for (place, text) in numbers.iter_mut().zip(rest.split('/')) {
            *place = number(text);
        }
        Entry {
            what: what.parse().expect("a letter"),
            process: worker.parse().expect("a worker"),
            at: Duration::from_secs(at),
            numbers,
        }
    };
    (1..).zip(text.split_whitespace()).map(entry).collect()
}

/// Writes such as `7/1`.
fn writes(text: &str) -> Vec<Write> {
    let write = |word: &str| {
        let (token, number) = word.split_once('/').expect("a token and a number");
        let number = number.parse().expect("a number");
        let token = token.parse().expect("a token");
        Write { token, number }
    };
    text.split_whitespace().map(write).collect()
}

fn judged(text: &str) -> Verdict {
    let lines = lines(text);
    let accepted = lines.iter().filter(|line| line.what == 'a');
    let fenced = accepted.map(|line| Write {
        token: line.numbers[0],
        number: line.numbers[1],
    });
    let written = Written {
        fenced: fenced.collect(),
        plain: Vec::new(),
    };
    Verdict::judge(&lines, &written)
}

/// The journal of one change in order: worker 1 hands over to worker 2.
const GOOD: &str = "1i7 1x7 1w7/1 1a7/1 2l7 0f3/7 1s7 1h7 1o7/1 2i8 2x8 2w8/1 2a8/1 2s8 2h8 2o8/1";

#[test]
fn what_is_good_has_nothing_to_find() {
    let verdict = judged(GOOD);
    verdict.assert_one_leader();
    assert_eq!((verdict.faults, verdict.terms, verdict.accepted), (1, 2, 2));
    assert_eq!(verdict.gaps.longest(), Duration::from_secs(4));
    verdict.assert_in_time(Duration::ZERO, Duration::ZERO);
    let shown = verdict.to_string();
    assert!(shown.ends_with("1 × resigned 4.000 4.000 4.000"), "{shown}");
}

#[test]
fn one_late_successor_in_a_hundred_is_allowed() {
    // Each time 2 s after the resignation.
    let change = |at: u64| format!("1h{at} 0f3/{at} 2l{at} 1i{} ", at + 1);
    let late = |changes: u64| {
        let text: String = (7..7 + changes).map(change).collect();
        let gaps = judged(&format!("1i7 {text}")).gaps;
        let of = |fault| fault == Fault::Resign;
        assert_eq!(gaps.late(of, Duration::from_secs(2)), []);
        assert_eq!(gaps.late(|_| false, Duration::ZERO), []);
        gaps.late(of, Duration::from_millis(1_999)).len()
    };
    assert_eq!([late(1), late(2)], [0, 2]);
}

/// Two resignations, and each time 2 s until there is a successor.
const SLOW: &str = "1i7 0f3/7 1h7 2i8 0f5/8 2h8 1i9 1h9";

#[test]
#[should_panic(expected = "after a leader resigned: [2s, 2s]")]
fn successors_that_come_late_are_found() {
    let (lost, resigned) = (Duration::ZERO, Duration::from_millis(199));
    judged(SLOW).assert_prompt(lost, resigned);
}

#[test]
#[should_panic(expected = "half after a leader resigned: 2s")]
fn successors_that_come_late_half_of_the_time_are_found() {
    let (lost, resigned) = (Duration::ZERO, Duration::from_secs(2));
    judged(SLOW).assert_prompt(lost, resigned);
    judged(SLOW).assert_prompt(lost, resigned - Duration::from_millis(1));
}

#[test]
#[should_panic(expected = "after a leader was lost: [3s, 3s]")]
fn successors_of_lost_leaders_that_come_late_are_found() {
    let verdict = judged("1i7 0f0/7 0k1 2x8 2i8 0f2/8 0p2 0c2 3i9 2h8 3h9");
    let lost = Duration::from_secs(3);
    verdict.assert_prompt(lost, Duration::ZERO);
    verdict.assert_prompt(lost - Duration::from_millis(1), Duration::ZERO);
}

#[test]
#[should_panic(expected = "stale: [Write { token: 7, number: 2 }]")]
fn a_write_of_an_older_term_is_found() {
    let written = Written {
        fenced: writes("7/1 8/1 7/2 8/2"),
        plain: writes("7/1 8/1 7/2 8/2 7/3"),
    };
    let verdict = Verdict::judge(&lines(GOOD), &written);
    assert_eq!(verdict.stale_in_twin, 2);
    verdict.assert_one_leader();
}

#[test]
#[should_panic(expected = "lost: [Write { token: 8, number: 1 }]")]
fn a_write_that_was_accepted_and_is_not_there_is_found() {
    let (fenced, plain) = (writes("7/1"), Vec::new());
    Verdict::judge(&lines(GOOD), &Written { fenced, plain }).assert_one_leader();
}

#[test]
#[should_panic(expected = "twice: [Write { token: 7, number: 1 }]")]
fn a_write_that_is_there_twice_is_found() {
    let (fenced, plain) = (writes("7/1 7/1 8/1"), Vec::new());
    Verdict::judge(&lines(GOOD), &Written { fenced, plain }).assert_one_leader();
}

#[test]
fn a_term_that_acts_after_the_next_one_has_begun_is_found() {
    let places = |text: &str| {
        let found = judged(text).overlapping;
        let pair = found.iter().map(|(old, new)| (old.token, new.token));
        pair.collect::<Vec<_>>()
    };
    // It writes, it is not dropped, and it has not stopped.
    assert_eq!(places("1i7 1x7 2i8 1w7/1 1h7 2h8"), [(7, 8)]);
    assert_eq!(places("1i7 1x7 2i8 1s7 1h7 2h8"), [(7, 8)]);
    assert_eq!(places("1i7 2i8 1x7 1h7 2h8"), [(7, 8)]);
    // It begins after a later one, or as another one does.
    assert_eq!(places("1i8 2i7 1h8 2h7"), [(7, 8)]);
    assert_eq!(places("1i7 2i7 1h7 2h7"), [(7, 7)]);
    // An answer to what it had sent is not an act, nor is the end of a lost term.
    assert_eq!(places("1i7 1x7 1w7/1 1s7 2i8 1r7/1 1h7/1 1o7/0 2h8"), []);
}

#[test]
fn what_a_paused_process_was_about_to_do_is_a_tail() {
    let verdict = judged("1i7 1x7 1a7/1 0p1 2i8 0c1 1w7/2 1r7/2 1s7 1h7/1 1o7/1 2h8");
    verdict.assert_one_leader();
    assert_eq!((verdict.tails, verdict.refused), (2, 1));
    // A term that begins after the pause has no excuse.
    let verdict = judged("1i7 0p1 0c1 1h7 1i8 1x8 2i9 1w8/1 1h8 2h9");
    assert_eq!(verdict.overlapping.len(), 1);
    // Nor has another process.
    let verdict = judged("1i7 1x7 0p3 2i8 1w7/1 1h7 2h8");
    assert_eq!(verdict.overlapping.len(), 1);
}

#[test]
#[should_panic(
    expected = "early: [(Tenure { process: 1, token: 7 }, Tenure { process: 2, token: 8 })]"
)]
fn a_term_that_begins_before_the_hand_over_has_ended_is_found() {
    judged("1i7 1a7/1 1h7 2i8 1o7/1 2h8 2o8/1").assert_one_leader();
}

#[test]
fn terms_that_are_not_handed_over_exactly_once_are_found() {
    let counts = |text: &str| {
        let found = judged(text).not_handed_over;
        let found = found.iter().map(|(term, count)| (term.token, *count));
        found.collect::<Vec<_>>()
    };
    assert_eq!(counts("1i7 2i8 2h8"), [(7, 0)]);
    assert_eq!(counts("1i7 1h7 1h7 2i8 2h8"), [(7, 2)]);
    assert_eq!(counts("1i7 0k1 2i8 2h8"), []);
    assert_eq!(counts("1i7 1h7 0k1 2i8 2h8"), []);
    assert_eq!(counts("1i7 0k2 2i8 2h8"), [(7, 0)]);
    // Of a paused process too.
    assert_eq!(counts("1i7 0p1 2i8 0c1 2h8"), [(7, 0)]);
    let verdict = judged("1h7 1i8 1h8");
    assert_eq!(verdict.not_inaugurated.len(), 1);
}

#[test]
fn a_better_rank_that_takes_the_term_is_found() {
    let preempted = |text| judged(text).preempted.len();
    assert_eq!(preempted("1i7 0y7 1h7 2i8 2h8"), 1);
    assert_eq!(preempted("1i7 0y7 0f5/7/2 1h7 2i8 2h8"), 0);
    // The leader was lost by itself.
    assert_eq!(preempted("1i7 0y7 1h7/1 2i8 2h8"), 0);
    // That is no excuse if its clock was set.
    assert_eq!(preempted("1i7 0y7/1 1h7/1 2i8 2h8"), 1);
}

#[test]
fn a_successor_that_was_not_chosen_is_found() {
    let passed_over = |text| judged(text).passed_over.len();
    assert_eq!(passed_over("1i7 0f4/7/3 1h7 2i8 2h8"), 1);
    assert_eq!(passed_over("1i7 0f4/7/2 1h7 2i8 2h8"), 0);
    // The leader was lost by itself, after the fault or just before it.
    assert_eq!(passed_over("1i7 0f4/7/3 1h7/1 2i8 2h8"), 0);
    assert_eq!(passed_over("1i7 1h7/1 0f4/7/3 2i8 2h8"), 0);
}

#[test]
#[should_panic(expected = "nothing was written")]
fn an_election_without_a_write_proves_nothing() {
    judged("1i7 1h7").assert_one_leader();
}
