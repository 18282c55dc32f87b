//! Who led when, and why that ended: pure.

use std::time::Duration;

use crate::log::{Line, Log, What};
use crate::plan::Fault;
use crate::words::{Word, Written};

/// A run, as the timeline shows it.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    /// The names of the processes.
    pub(crate) names: Vec<String>,
    pub(crate) terms: Vec<Tenure>,
    pub(crate) faults: Vec<Mark>,
    /// When the store has refused a bill of which process.
    pub(crate) refused: Vec<(usize, Duration)>,
    pub(crate) end: Duration,
}

/// A term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenure {
    pub(crate) who: usize,
    pub(crate) token: u64,
    pub(crate) from: Duration,
    /// When it ended; for a process that was killed or paused, when it was.
    pub(crate) to: Duration,
    pub(crate) why: String,
    /// How long it took from the fault, or the end of the term, to the first bill of a later term.
    pub(crate) gap: Option<Duration>,
    pub(crate) billed: usize,
    pub(crate) refused: usize,
}

/// A fault, and how long the process was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) who: usize,
    pub(crate) fault: Fault,
    pub(crate) at: Duration,
    pub(crate) until: Duration,
    /// When a later term has written its first bill.
    pub(crate) bill: Option<Duration>,
}

impl Story {
    pub(crate) fn of(log: &Log, names: &[&str], end: Duration) -> Self {
        let lines = log.lines();
        let leads = lines.iter().filter_map(|line| match line.what {
            What::Said(Word::Leads(token)) => Some(tenure(log, line, token, end)),
            _ => None,
        });
        let mut terms: Vec<Tenure> = leads.collect();
        terms.sort_by_key(|term| term.token);
        let faults = lines
            .iter()
            .enumerate()
            .filter_map(|(at, line)| match line.what {
                What::Fault(fault, token) => Some(mark(log, &lines[at..], fault, token, end)),
                _ => None,
            });
        let refused = lines
            .iter()
            .filter(|line| matches!(&line.what, What::Said(Word::Done(_, _, Written::Refused))));
        Self {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            terms,
            faults: faults.collect(),
            refused: refused.map(|line| (line.who, line.at)).collect(),
            end,
        }
    }

    /// Returns the longest time without a bill after a fault, and which fault it was.
    pub(crate) fn longest_gap(&self) -> Option<(Duration, Fault)> {
        let gaps = self
            .faults
            .iter()
            .filter_map(|mark| Some((mark.bill? - mark.at, mark.fault)));
        gaps.max()
    }
}

fn tenure(log: &Log, first: &Line, token: u64, end: Duration) -> Tenure {
    let mut tenure = Tenure {
        who: first.who,
        token,
        from: first.at,
        to: end,
        why: "the run has ended".to_owned(),
        gap: None,
        billed: 0,
        refused: log.refused(token),
    };
    let (mut fault, mut is_over) = (None, false);
    for line in log.lines() {
        match &line.what {
            What::Fault(of, of_token) if *of_token == token => {
                fault = Some(line.at);
                if matches!(of, Fault::Kill | Fault::Pause) {
                    (tenure.to, is_over) = (line.at, true);
                    tenure.why = of.name().to_owned();
                }
            }
            What::Said(Word::Ends(of, why)) if *of == token && !is_over => {
                (tenure.to, tenure.why) = (line.at, why.clone());
            }
            What::Said(Word::Left(of)) if *of == token && !is_over => tenure.to = line.at,
            What::Said(Word::Done(of, _, Written::Billed)) if *of == token => tenure.billed += 1,
            _ => {}
        }
    }
    let next = log.succeeded(token).map(|next| next.at);
    tenure.gap = next.map(|next| next.saturating_sub(fault.unwrap_or(tenure.to)));
    tenure
}

fn mark(log: &Log, lines: &[Line], fault: Fault, token: u64, end: Duration) -> Mark {
    let Line { who, at, .. } = lines[0];
    let back = lines
        .iter()
        .find(|line| line.who == who && line.what == What::Back(fault));
    let until = match fault {
        Fault::Resign => at,
        _ => back.map_or(end, |back| back.at),
    };
    let bill = log.succeeded(token).map(|bill| bill.at.max(at));
    Mark {
        who,
        fault,
        at,
        until,
        bill,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::log::tests::{done, leads, line};

    /// Anna is paused and its late bill is refused; bert resigns, and anna leads again.
    pub(crate) fn story() -> Story {
        let said = |word| What::Said(word);
        let lines = [
            line(0, 100, leads(5)),
            line(0, 1_300, done(5, 1, Written::Billed)),
            line(0, 2_000, What::Fault(Fault::Pause, 5)),
            line(1, 3_100, leads(8)),
            line(1, 3_500, done(8, 2, Written::Billed)),
            line(0, 4_000, What::Back(Fault::Pause)),
            line(
                0,
                4_010,
                said(Word::Ends(5, "the term was lost".to_owned())),
            ),
            line(0, 4_020, done(5, 2, Written::Refused)),
            line(1, 6_000, What::Fault(Fault::Resign, 8)),
            line(1, 6_010, said(Word::Ends(8, "resigned".to_owned()))),
            line(1, 6_100, said(Word::Left(8))),
            line(0, 6_200, leads(9)),
            line(0, 6_400, done(9, 6, Written::Billed)),
        ];
        let mut log = Log::default();
        lines.into_iter().for_each(|line| log.push(line));
        Story::of(&log, &["anna", "bert", "cora"], Duration::from_secs(8))
    }

    #[test]
    fn a_term_ends_with_its_fault_or_when_it_was_handed_over() {
        let seconds = Duration::from_millis;
        let Story { terms, refused, .. } = story();
        let spans: Vec<_> = terms
            .iter()
            .map(|term| (term.who, term.from, term.to))
            .collect();
        let expected = [
            (0, seconds(100), seconds(2_000)),
            (1, seconds(3_100), seconds(6_100)),
            (0, seconds(6_200), seconds(8_000)),
        ];
        assert_eq!(spans, expected);
        let whys: Vec<&str> = terms.iter().map(|term| &*term.why).collect();
        assert_eq!(
            whys,
            ["is paused (SIGSTOP)", "resigned", "the run has ended"]
        );
        let gaps: Vec<_> = terms.iter().map(|term| term.gap).collect();
        assert_eq!(gaps, [Some(seconds(1_500)), Some(seconds(400)), None]);
        assert_eq!((terms[0].billed, terms[0].refused), (1, 1));
        assert_eq!(refused, [(0, seconds(4_020))]);
    }

    #[test]
    fn a_fault_lasts_until_the_process_is_back() {
        let story = story();
        let spans: Vec<_> = story
            .faults
            .iter()
            .map(|mark| mark.until - mark.at)
            .collect();
        assert_eq!(spans, [Duration::from_secs(2), Duration::ZERO]);
        let gap = Duration::from_millis(1_500);
        assert_eq!(story.longest_gap(), Some((gap, Fault::Pause)));
    }
}
