//! The text of a violation.

use super::planted::Planted;
use crate::check::evidence::Evidence;
use crate::check::judge::check;
use crate::check::rule::Rule;
use crate::check::verdict::Finding;

#[test]
fn a_violation_shows_the_part_of_the_history_that_matters() {
    let overlap = Planted::new()
        .sent(1, [(1, 1), (2, 2)])
        .sent(2, [(1, 8), (2, 9)])
        .done(8)
        .at(250)
        .start(1, 1)
        .done(9)
        .at(300)
        .start(2, 1)
        .at(1500)
        .ok(1, 1)
        .ok(2, 1);
    let violations = overlap.check(&Evidence::new()).expect_err("an overlap");
    let expected = "\
I3 exclusion broken on key 1 by ids [1, 2]: an attempt started while another of its key ran
    #0 +0.000s sent id 1 key 1 seq 1 ok
    #1 +0.000s sent id 2 key 1 seq 2 ok
  > #6 +0.250s start id 1 attempt 1 token 0 (key 1 seq 1)
  > #9 +0.300s start id 2 attempt 1 token 0 (key 1 seq 2)
    #10 +1.500s end id 1 attempt 1 ok (key 1 seq 1)
    #11 +1.500s end id 2 attempt 1 ok (key 1 seq 2)";
    assert_eq!(violations[0].to_string(), expected);
    assert_eq!(format!("{:?}", violations[0]), format!("\n{expected}"));
}

#[test]
fn an_excerpt_shows_what_else_concerns_it() {
    let merged = Planted::new()
        .sent(1, [(1, 1), (2, 2)])
        .coalesced(9, 2)
        .sent(2, [(1, 8)])
        .done(8)
        .revoke()
        .coalesced(1, 9)
        .done(2);
    let violations = merged.check(&Evidence::new()).expect_err("a bad history");
    let expected = "\
I2 no invention broken by ids [9]: was never sent
  > #2 +0.000s coalesced id 9 into id 2
    #6 +0.000s revoke of generation 1
    #7 +0.000s coalesced id 1 into id 9 (key 1 seq 1)";
    assert_eq!(violations[0].to_string(), expected);

    let writes = Planted::new()
        .write(1, 1, true)
        .write(2, 0, true)
        .write(1, 0, true)
        .crash(0);
    let violations = writes.check(&Evidence::new()).expect_err("a bad history");
    let expected = "\
I12 fencing broken on key 1: token 0 was accepted after token 1
  > #0 +0.000s sink write key 1 token 1 accepted
  > #2 +0.000s sink write key 1 token 0 accepted
    #3 +0.000s crash of epoch 0";
    assert_eq!(violations[0].to_string(), expected);
}

#[test]
fn an_excerpt_leaves_out_what_lies_far_between() {
    let mut history = Planted::new()
        .sent(1, [(1, 1)])
        .start(1, 1)
        .sent(1, [(2, 2)]);
    for id in 10..30 {
        history = history.sent(1, [(id, id)]);
    }
    let violations = history
        .start(2, 1)
        .check(&Evidence::new())
        .expect_err("an overlap");
    let lines: Vec<_> = violations[0].excerpt.lines().collect();
    assert_eq!(lines.len(), 8, "{lines:#?}");
    assert_eq!(lines[4], "      …");
}

#[test]
fn an_excerpt_is_short() {
    let mut history = Planted::new();
    for id in 1..=40 {
        history = history.sent(1, [(id, id)]);
    }
    for id in 1..=40 {
        history = history.start(id, 1);
    }
    let violations = history.check(&Evidence::new()).expect_err("overlaps");
    assert_eq!(violations.len(), 8, "of each rule the first few");
    assert!(
        violations[7]
            .excerpt
            .ends_with("and 772 more violations of this rule")
    );
    assert!(!violations[6].excerpt.contains("more violations"));
    assert!(
        violations
            .iter()
            .all(|violation| violation.excerpt.lines().count() <= 18)
    );
}

#[test]
fn a_verdict_speaks_of_every_rule() {
    let history = Planted::new().sent(1, [(1, 1)]).done(1);
    let evidence = history.whole().lanes(0);
    let verdict = history.check(&evidence).expect("a good history");
    let text = verdict.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), Rule::ALL.len());
    for ((line, rule), (found, _)) in lines.iter().zip(Rule::ALL).zip(verdict.findings()) {
        assert!(line.starts_with(&format!("{rule}: ")), "{line}");
        assert_eq!(found, rule);
    }
    assert_eq!(lines[0], "I1 no loss: holds");
    assert_eq!(
        lines[5],
        "I6 offsets: not judged: the events carry no offsets"
    );
    let memory = "I13 memory: holds in part, without the count of permits, without the size of \
                      the heap";
    assert_eq!(lines[12], memory);
}

#[test]
#[should_panic(expected = "I5 acks: not judged: there are no acks")]
fn a_verdict_insists_on_evidence() {
    let history = Planted::new().sent(1, [(1, 1)]).done(1);
    let verdict = history.check(&Evidence::new()).expect("a good history");
    verdict.assert_judged(&[Rule::Order, Rule::Acks]);
}

#[test]
fn an_empty_history_proves_nothing() {
    let verdict = check(&[], &Evidence::new()).expect("nothing is wrong");
    assert!(
        verdict
            .findings()
            .all(|(_, finding)| matches!(finding, Finding::NotJudged(_)))
    );
}
