//! Whether each account was billed once for each period: pure.

use std::collections::HashMap;
use std::fmt;

use examples::say::grouped;

use crate::words::Bill;

/// How many findings a line names.
const NAMED: usize = 4;

/// A bill in the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) bill: Bill,
    /// The token of the term that has written it.
    pub(crate) token: u64,
    pub(crate) leader: String,
}

/// What is wrong with the books.
#[derive(Debug)]
pub(crate) struct Verdict {
    accounts: u32,
    periods: u32,
    written: usize,
    /// Bills that were written more than once.
    twice: Vec<Bill>,
    /// Bills from the first period to the last that were not written.
    skipped: Vec<Bill>,
    /// Bills for a period or an account that there is not.
    foreign: Vec<Bill>,
    /// Bills of a term that were written after one of a later term.
    stale: Vec<Bill>,
}

impl Verdict {
    /// Judges the bills in the order in which they were written: of accounts from 0 on, and of
    /// periods from 1 on.
    pub(crate) fn of(entries: &[Entry], accounts: u32, periods: u32) -> Self {
        let mut counts: HashMap<Bill, usize> = HashMap::new();
        let mut foreign = Vec::new();
        for Entry { bill, .. } in entries {
            *counts.entry(*bill).or_default() += 1;
            if bill.account >= accounts || !(1..=periods).contains(&bill.period) {
                foreign.push(*bill);
            }
        }
        let all = (1..=periods)
            .flat_map(|period| (0..accounts).map(move |account| Bill { account, period }));
        let written = |bill: &Bill| counts.get(bill).copied().unwrap_or(0);
        Self {
            accounts,
            periods,
            written: entries.len(),
            twice: all.clone().filter(|bill| written(bill) > 1).collect(),
            skipped: all.filter(|bill| written(bill) == 0).collect(),
            foreign,
            stale: stale(entries),
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        let lists = [&self.twice, &self.skipped, &self.foreign, &self.stale];
        lists.iter().all(|list| list.is_empty()) && self.written > 0
    }
}

fn stale(entries: &[Entry]) -> Vec<Bill> {
    let mut newest = 0;
    let stale = entries.iter().filter(|entry| {
        newest = newest.max(entry.token);
        entry.token < newest
    });
    stale.map(|entry| entry.bill).collect()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bills = u64::from(self.accounts) * u64::from(self.periods);
        writeln!(
            f,
            "bills           {} written, for {} accounts and {} seconds",
            grouped(self.written as u64),
            self.accounts,
            self.periods
        )?;
        let lists = [
            ("billed twice", &self.twice),
            ("skipped", &self.skipped),
            ("not due", &self.foreign),
            ("of an old term", &self.stale),
        ];
        for (name, list) in lists {
            let (found, bills) = (grouped(list.len() as u64), grouped(bills));
            writeln!(f, "{name:<16}{found} of {bills}{}", named(list))?;
        }
        f.write_str(match self.is_good() {
            true => "verdict         every account was billed once for every second",
            false => "verdict         ACCOUNTS WERE NOT BILLED ONCE FOR EVERY SECOND",
        })
    }
}

/// The first of them.
fn named(list: &[Bill]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let first = list.iter().take(NAMED);
    let first: Vec<String> = first
        .map(|bill| format!("account {} for second {}", bill.account, bill.period))
        .collect();
    let more = if list.len() > NAMED { ", …" } else { "" };
    format!(": {}{more}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two accounts, three periods; the third period is of a second term.
    fn books() -> Vec<Entry> {
        let bills = (1..=3).flat_map(|period| (0..2).map(move |account| Bill { account, period }));
        let entries = bills.map(|bill| Entry {
            bill,
            token: if bill.period == 3 { 9 } else { 5 },
            leader: "anna".to_owned(),
        });
        entries.collect()
    }

    fn judged(entries: &[Entry]) -> Verdict {
        Verdict::of(entries, 2, 3)
    }

    const BILL: Bill = Bill {
        account: 1,
        period: 2,
    };

    #[test]
    fn good_books_are_found_good() {
        let verdict = judged(&books());
        assert!(verdict.is_good(), "{verdict}");
        assert!(
            verdict
                .to_string()
                .contains("every account was billed once")
        );
    }

    #[test]
    fn an_account_that_is_billed_twice_is_found() {
        let mut entries = books();
        entries.insert(4, entries[3].clone());
        let verdict = judged(&entries);
        assert_eq!(verdict.twice, [BILL]);
        assert!(!verdict.is_good() && verdict.skipped.is_empty() && verdict.stale.is_empty());
        assert!(
            verdict
                .to_string()
                .contains("1 of 6: account 1 for second 2")
        );
    }

    #[test]
    fn an_account_that_is_skipped_is_found() {
        let mut entries = books();
        entries.remove(3);
        let verdict = judged(&entries);
        assert_eq!(verdict.skipped, [BILL]);
        assert!(!verdict.is_good() && verdict.twice.is_empty());
    }

    #[test]
    fn the_last_second_is_judged() {
        let mut entries = books();
        let last = entries.pop();
        let verdict = judged(&entries);
        assert_eq!(Some(verdict.skipped), last.map(|entry| vec![entry.bill]));
    }

    #[test]
    fn a_bill_of_an_old_term_is_found() {
        let mut entries = books();
        let late = entries.remove(3);
        entries.push(late);
        let verdict = judged(&entries);
        assert_eq!(verdict.stale, [BILL]);
        assert!(!verdict.is_good() && verdict.twice.is_empty() && verdict.skipped.is_empty());
    }

    #[test]
    fn a_bill_that_is_not_due_is_found() {
        for (account, period) in [(0, 0), (0, 4), (2, 1)] {
            let bill = Bill { account, period };
            let mut entries = books();
            entries.push(Entry {
                bill,
                token: 9,
                leader: "anna".to_owned(),
            });
            assert_eq!(judged(&entries).foreign, [bill]);
            assert!(!judged(&entries).is_good());
        }
    }

    #[test]
    fn empty_books_are_not_good() {
        assert!(!Verdict::of(&[], 2, 0).is_good());
    }
}
