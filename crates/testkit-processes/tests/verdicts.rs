//! The judge of workers on a server that fails over: it finds what must not be.

use std::time::Duration;

use testkit_processes::{Answer, Entry, Sent, Verdict};

/// Messages of key 1, sent at these seconds, all accepted.
fn sent(at: &[u64]) -> Vec<Sent> {
    let sent = at.iter().map(|at| Sent {
        key: 1,
        at: Duration::from_secs(*at),
        answer: Answer::Accepted,
    });
    sent.collect()
}

/// Reads a journal of one key, a line in each second from 1 on: worker, event, message and token in
/// each word, as in `1s0/5 1e0/5`. A word without a worker is of the test: `f`, `l`, `h`, `k1`.
fn lines(text: &str) -> Vec<Entry> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let entry = |(at, word): (u64, &str)| {
        let (worker, rest) = match word.starts_with(|first: char| first.is_ascii_digit()) {
            true => word.split_at(1),
            false => ("0", word),
        };
        let (what, rest) = rest.split_at(1);
        let numbers = match rest.split_once('/') {
            Some((id, token)) => [1, number(id), number(token)],
            None if rest.is_empty() => [0; 3],
            None => [number(rest), 0, 0],
        };
        Entry {
            what: what.parse().expect("a letter"),
            process: worker.parse().expect("a worker"),
            at: Duration::from_secs(at),
            numbers,
        }
    };
    (1..).zip(text.split_whitespace()).map(entry).collect()
}

fn judged(at: &[u64], text: &str) -> Verdict {
    Verdict::judge(&sent(at), &lines(text))
}

/// Where the attempts of overlapping pairs began.
fn overlapping(verdict: &Verdict) -> Vec<(u64, u64)> {
    let pairs = verdict.overlapping.iter();
    pairs.map(|(one, other)| (one.id, other.id)).collect()
}

#[test]
fn what_is_good_has_nothing_to_find() {
    let good = judged(&[0, 0, 5], "1s0/1 1e0/1 1s1/1 f 1e1/1 2s2/2 2e2/2");
    good.assert_nothing_lost();
    assert_eq!((good.answers, good.done), ([3, 0, 0], 3));
    assert_eq!((good.stale, good.ages.len()), (0, 0));
}

#[test]
#[should_panic(expected = "lost: [1]")]
fn a_message_that_is_never_done_is_lost() {
    judged(&[0, 0], "1s0/1 1e0/1 1s1/1 1d1/1").assert_nothing_lost();
}

#[test]
fn what_is_lost_was_sent_before_a_fault() {
    let verdict = judged(
        &[0, 1, 2, 9],
        "1s0/1 1e0/1 1s0/1 f 1d0/1 2s0/1 2d0/1 1s3/1 1d3/1 1s3/1 1e3/1",
    );
    assert_eq!(verdict.lost, [1, 2]);
    assert_eq!(verdict.lost_before, Duration::from_secs(3));
    // Accepted while the server was about to fail.
    let verdict = judged(&[0, 3, 90], "1s0/1 f 1e0/1 1s2/1 1e2/1");
    assert_eq!(
        (verdict.lost, verdict.lost_before),
        (vec![1], Duration::ZERO)
    );
}

#[test]
fn only_an_accepted_message_can_be_lost_or_passed() {
    let mut sent = sent(&[0, 0]);
    sent[1].answer = Answer::Unknown;
    Verdict::judge(&sent, &lines("1s0/1 1e0/1")).assert_nothing_lost();
    Verdict::judge(&sent, &lines("1s1/1 1e1/1 1s0/1 1e0/1")).assert_nothing_lost();
}

#[test]
fn messages_that_no_server_has_are_invented() {
    let mut sent = sent(&[0]);
    sent[0].answer = Answer::Refused;
    let verdict = Verdict::judge(&sent, &lines("1s0/1 1e0/1 1s7/1 1e7/1"));
    let mut invented = verdict.invented;
    invented.sort_unstable();
    assert_eq!(invented, [0, 7]);
}

#[test]
#[should_panic(expected = "passing: [(1, 0)]")]
fn a_message_that_passes_another_one_is_found() {
    judged(&[0, 0], "1s1/1 1e1/1 1s0/1 1e0/1").assert_in_order();
}

#[test]
#[should_panic(expected = "passing: [(1, 0)]")]
fn a_message_that_passes_one_that_has_begun_is_found() {
    judged(&[0, 0], "1s0/1 1d0/1 1s1/1 1e1/1 1s0/1 1e0/1").assert_in_order();
}

#[test]
fn the_end_of_a_stale_attempt_does_nothing_for_the_next_one() {
    // The worker begins again, under a token of its own, while the stale attempt has not ended.
    let verdict = judged(&[0, 0], "1s0/1 2s0/2 2d0/2 1s0/3 1e0/1 1d0/3");
    assert_eq!((verdict.lost, verdict.done), (vec![0, 1], 0));
}

#[test]
fn two_attempts_under_one_token_overlap() {
    let verdict = judged(&[0, 0], "1s0/1 2s1/1 1e0/1 2e1/1");
    assert_eq!(overlapping(&verdict), [(0, 1)]);
    assert_eq!(verdict.stale, 0);
}

#[test]
fn attempts_under_lower_tokens_are_stale() {
    // The first one ends too late, and the last one begins too late.
    let verdict = judged(&[0, 0], "1s0/1 2s0/2 1e0/1 2e0/2 1s1/1 2s1/2 2e1/2 1e1/1");
    verdict.assert_nothing_lost();
    assert_eq!((verdict.stale, verdict.done), (2, 2));
    // What a stale attempt has done is not done.
    let verdict = judged(&[0, 0], "1s0/1 2s1/2 1e0/1 2e1/2");
    assert_eq!(verdict.lost, [0]);
}

#[test]
fn tokens_are_no_excuse_for_one_worker() {
    let verdict = judged(&[0, 0], "1s0/1 1s1/2 1e0/1 1e1/2");
    assert_eq!(overlapping(&verdict), [(0, 1)]);
    assert_eq!((verdict.stale, verdict.done), (0, 2));
}

#[test]
fn a_killed_worker_overlaps_nothing() {
    let verdict = judged(&[0, 0], "1s0/1 k1 2s0/1 2e0/1 2s1/1 2e1/1");
    verdict.assert_nothing_lost();
    assert_eq!(verdict.kills, 1);
}

#[test]
fn overlaps_are_looked_for_within_a_history() {
    // In another history a token may come again.
    let text = "1s0/5 l 2s0/1 1e0/5 2e0/1 h 2s1/1 2e1/1";
    let verdict = judged(&[0, 3], text);
    verdict.assert_nothing_lost();
    assert_eq!(verdict.stale, 0);
    let text = "1s0/5 l 2s0/1 1e0/5 2e0/1 h 2s1/1 1s1/1 1e1/1 2e1/1";
    assert_eq!(overlapping(&judged(&[0, 3], text)), [(1, 1)]);
    // Without another history it may not.
    let text = "1s0/5 f 2s0/1 1e0/5 2e0/1 2s1/6 2e1/6";
    assert_eq!(judged(&[0, 3], text).stale, 1);
}

#[test]
fn the_age_of_a_repetition_is_its_time_before_the_fault() {
    let ages = |text| {
        let ages = judged(&[0, 90], text).ages;
        ages.iter().map(Duration::as_secs).collect::<Vec<_>>()
    };
    assert_eq!(ages("1s0/1 1e0/1 2s1/1 2d1/1 k1 2s0/2 2d0/2"), [3]);
    // After the fault, or the kill of another worker.
    assert_eq!(ages("1s0/1 1e0/1 k2 1s0/1 1d0/1"), [0]);
}

#[test]
fn a_key_goes_on_with_a_message_that_was_sent_after_the_fault() {
    let verdict = judged(&[0, 2, 4], "1s0/1 1e0/1 f 1s1/1 1e1/1 1s2/1 1e2/1");
    assert_eq!(verdict.pauses, [Duration::from_secs(4)]);
    let shown = verdict.to_string();
    assert!(
        shown.ends_with("goes on after (half, all): 4.0 s, 4.0 s"),
        "{shown}"
    );
}

#[test]
#[should_panic(expected = "every key goes on after a fault")]
fn a_key_that_stands_still_is_found() {
    let mut sent = sent(&[0, 4]);
    sent.push(Sent { key: 2, ..sent[0] });
    Verdict::judge(&sent, &lines("1s0/1 1e0/1 f 1s1/1 1e1/1"));
}

#[test]
#[should_panic(expected = "has not begun")]
fn an_end_without_a_beginning_is_an_error() {
    judged(&[0], "1e0/1");
}
