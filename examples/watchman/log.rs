//! What has happened so far: pure.

use std::collections::HashMap;
use std::time::Duration;

use crate::plan::Fault;
use crate::words::{Bill, Word, Written};

/// Something that has happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The number of the process.
    pub(crate) who: usize,
    pub(crate) at: Duration,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Said(Word),
    /// A fault, in the term with this token.
    Fault(Fault, u64),
    /// The fault is over: the process is there again.
    Back(Fault),
}

/// All lines, in the order in which they were heard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    lines: Vec<Line>,
}

/// A leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leading {
    pub(crate) who: usize,
    pub(crate) token: u64,
    pub(crate) since: Duration,
}

impl Log {
    pub(crate) fn push(&mut self, line: Line) {
        self.lines.push(line);
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Returns the leader, as far as it is known.
    pub(crate) fn leader(&self) -> Option<Leading> {
        let (mut newest, mut leader) = (0, None);
        for line in &self.lines {
            match line.what {
                What::Said(Word::Leads(token)) if token > newest => {
                    newest = token;
                    leader = Some(Leading {
                        who: line.who,
                        token,
                        since: line.at,
                    });
                }
                What::Said(Word::Ends(token, _)) | What::Fault(Fault::Kill, token)
                    if token == newest =>
                {
                    leader = None;
                }
                _ => {}
            }
        }
        leader
    }

    /// Returns the last period for which a bill was written in this term.
    pub(crate) fn billed(&self, token: u64) -> Option<u32> {
        let of_term = self.lines.iter().filter_map(|line| match &line.what {
            What::Said(Word::Done(of, bill, Written::Billed)) if *of == token => Some(bill.period),
            _ => None,
        });
        of_term.max()
    }

    /// Returns the first bill that was written in a later term than this one.
    pub(crate) fn succeeded(&self, token: u64) -> Option<&Line> {
        self.lines.iter().find(|line| {
            matches!(&line.what, What::Said(Word::Done(of, _, Written::Billed)) if *of > token)
        })
    }

    /// Returns whether a bill was begun in this term, in the lines from this place on.
    pub(crate) fn begins(&self, token: u64, from: usize) -> bool {
        let lines = self.lines.get(from..).unwrap_or_default();
        let is_begin =
            |line: &Line| matches!(line.what, What::Said(Word::Begins(of, _)) if of == token);
        lines.iter().any(is_begin)
    }

    /// Returns how many bills of this term were begun and have not ended.
    pub(crate) fn open(&self, token: u64) -> usize {
        let mut open: HashMap<Bill, i64> = HashMap::new();
        for line in &self.lines {
            match &line.what {
                What::Said(Word::Begins(of, bill)) if *of == token => {
                    *open.entry(*bill).or_default() += 1;
                }
                What::Said(Word::Done(of, bill, _)) if *of == token => {
                    *open.entry(*bill).or_default() -= 1;
                }
                _ => {}
            }
        }
        open.values().filter(|open| **open > 0).count()
    }

    /// Returns whether the process has ended this term in order, or has noticed its loss.
    pub(crate) fn has_left(&self, token: u64) -> bool {
        let is_end = |line: &Line| matches!(line.what, What::Said(Word::Left(of)) if of == token);
        self.lines.iter().any(is_end)
    }

    /// Returns how many bills the store has refused in this term.
    pub(crate) fn refused(&self, token: u64) -> usize {
        let is_refused = |line: &&Line| matches!(&line.what, What::Said(Word::Done(of, _, Written::Refused)) if *of == token);
        self.lines.iter().filter(is_refused).count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn line(who: usize, at: u64, what: What) -> Line {
        let at = Duration::from_millis(at);
        Line { who, at, what }
    }

    pub(crate) fn leads(token: u64) -> What {
        What::Said(Word::Leads(token))
    }

    pub(crate) fn done(token: u64, period: u32, written: Written) -> What {
        let account = 0;
        What::Said(Word::Done(token, Bill { account, period }, written))
    }

    fn log(lines: Vec<Line>) -> Log {
        Log { lines }
    }

    #[test]
    fn the_leader_is_the_newest_one_that_has_not_ended() {
        let mut lines = vec![line(0, 10, leads(5))];
        let who = |lines: &[Line]| log(lines.to_vec()).leader().map(|leader| leader.who);
        assert_eq!(who(&lines), Some(0));
        lines.push(line(1, 20, leads(7)));
        lines.push(line(0, 30, What::Said(Word::Ends(5, String::new()))));
        assert_eq!(who(&lines), Some(1));
        lines.push(line(1, 40, What::Fault(Fault::Kill, 7)));
        assert_eq!(who(&lines), None);
    }

    #[test]
    fn bills_are_open_until_they_are_done() {
        let bill = Bill {
            account: 0,
            period: 4,
        };
        let begun = line(0, 1, What::Said(Word::Begins(5, bill)));
        let refused = line(0, 2, done(5, 4, Written::Refused));
        let billed = line(1, 3, done(6, 4, Written::Billed));
        let log = |lines| log(lines);
        assert_eq!(log(vec![begun.clone()]).open(5), 1);
        let all = log(vec![begun, refused, billed.clone()]);
        assert_eq!((all.open(5), all.refused(5)), (0, 1));
        assert_eq!(all.succeeded(5), Some(&billed));
        assert_eq!((all.billed(5), all.billed(6)), (None, Some(4)));
        assert!(all.begins(5, 0) && !all.begins(5, 1) && !all.begins(6, 0));
    }
}
