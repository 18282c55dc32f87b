//! Whether the books are right.

use std::collections::HashMap;
use std::fmt;

use examples::say::grouped;

use crate::money::money;
use crate::plan::{Account, Plan};

/// How many transfers or accounts a line names.
const NAMED: usize = 6;

/// What the tables say at the end.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    pub(crate) accounts: Vec<Account>,
    /// In the order in which they were made.
    pub(crate) bookings: Vec<Booking>,
    /// Messages that wait, and dead letters.
    pub(crate) left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Booking {
    pub(crate) transfer: i32,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Debit,
    Refusal,
    Credit,
}

/// What is wrong with the books, by the numbers of transfers and accounts.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    transfers: usize,
    accounts: usize,
    refused: usize,
    /// Transfers of which a booking is missing.
    lost: Vec<i32>,
    /// Transfers of which a booking was made more than once.
    twice: Vec<i32>,
    /// Transfers that were refused and are covered, or the other way round.
    wrongly_judged: Vec<i32>,
    /// Transfers that were booked after a later one of the same account.
    reordered: Vec<i32>,
    /// Accounts that are not what the transfers give one by one.
    wrong: Vec<i32>,
    /// How many accounts would differ if the order were the reverse.
    would_differ: usize,
    /// The sum of the balances, and what it was.
    total: (i64, i64),
    left: u64,
}

impl Verdict {
    pub(crate) fn of(plan: &Plan, books: &Books) -> Self {
        let expected = plan.one_by_one();
        let mut counts: HashMap<(i32, Kind), u32> = HashMap::new();
        for booking in &books.bookings {
            *counts.entry((booking.transfer, booking.kind)).or_default() += 1;
        }
        let count = |number, kind| counts.get(&(number, kind)).copied().unwrap_or(0);
        let mut verdict = Self {
            transfers: plan.transfers.len(),
            accounts: plan.openings.len(),
            reordered: reordered(plan, books),
            would_differ: differing(&plan.reversed().accounts, &expected.accounts).len(),
            wrong: differing(&books.accounts, &expected.accounts),
            total: (
                books.accounts.iter().map(Account::balance).sum(),
                plan.openings.iter().sum(),
            ),
            left: books.left,
            ..Self::default()
        };
        for transfer in &plan.transfers {
            let number = transfer.number;
            let (debits, refusals) = (count(number, Kind::Debit), count(number, Kind::Refusal));
            let credits = count(number, Kind::Credit);
            let is_covered = expected.covered[number as usize];
            verdict.refused += usize::from(!is_covered);
            if debits + refusals == 0 || (debits > 0 && credits == 0) {
                verdict.lost.push(number);
            }
            if debits + refusals > 1 || credits > 1 {
                verdict.twice.push(number);
            }
            let is_wrong = if is_covered {
                refusals > 0
            } else {
                debits + credits > 0
            };
            if is_wrong {
                verdict.wrongly_judged.push(number);
            }
        }
        verdict
    }

    pub(crate) fn is_good(&self) -> bool {
        let Self {
            lost,
            twice,
            wrongly_judged,
            reordered,
            wrong,
            total,
            left,
            ..
        } = self;
        let lists = [lost, twice, wrongly_judged, reordered, wrong];
        lists.iter().all(|list| list.is_empty()) && total.0 == total.1 && *left == 0
    }
}

/// Debits of an account come in the order of its transfers, and so do the credits that one account
/// sends to another. Bookings of an account are made one after the other, and are read in that order.
fn reordered(plan: &Plan, books: &Books) -> Vec<i32> {
    let mut last: HashMap<(i32, Option<i32>), i32> = HashMap::new();
    let mut reordered = Vec::new();
    for booking in &books.bookings {
        let transfer = &plan.transfers[booking.transfer as usize];
        let to = (booking.kind == Kind::Credit).then_some(transfer.to);
        let last = last.entry((transfer.from, to)).or_insert(transfer.number);
        if transfer.number < *last {
            reordered.push(transfer.number);
        }
        *last = transfer.number.max(*last);
    }
    reordered
}

fn differing(found: &[Account], expected: &[Account]) -> Vec<i32> {
    let accounts = 0..expected.len().max(found.len());
    let differs = |account: &usize| found.get(*account) != expected.get(*account);
    accounts
        .filter(differs)
        .map(|account| account as i32)
        .collect()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transfers, accounts) = (self.transfers as u64, self.accounts as u64);
        let covered = grouped(transfers - self.refused as u64);
        let refused = grouped(self.refused as u64);
        let whole = format!("of {}", grouped(transfers));
        line(f, "lost", &named(&self.lost, &whole))?;
        line(f, "booked twice", &named(&self.twice, &whole))?;
        let judged = format!("wrongly; {covered} are covered, and {refused} are not");
        line(f, "refused", &named(&self.wrongly_judged, &judged))?;
        line(f, "reordered", &named(&self.reordered, &whole))?;
        let right = accounts - self.wrong.len() as u64;
        let balances = format!(
            "{} of {} as if booked one by one; in the reverse order {} would differ",
            grouped(right),
            grouped(accounts),
            grouped(self.would_differ as u64)
        );
        line(f, "balances", &balances)?;
        if !self.wrong.is_empty() {
            line(f, "WRONG", &named(&self.wrong, "accounts"))?;
        }
        let (found, expected) = self.total;
        let total = match found - expected {
            0 => format!("{}, to the cent", money(found)),
            off => format!(
                "{} instead of {}: {} too much",
                money(found),
                money(expected),
                money(off)
            ),
        };
        line(f, "in all", &total)?;
        if self.left > 0 {
            line(
                f,
                "LEFT",
                &format!("{} messages and dead letters", grouped(self.left)),
            )?;
        }
        let verdict = match self.is_good() {
            true => "the books balance",
            false => "THE BOOKS DO NOT BALANCE",
        };
        line(f, "verdict", verdict)
    }
}

pub(crate) fn line(f: &mut fmt::Formatter<'_>, name: &str, value: &str) -> fmt::Result {
    writeln!(f, "{name:<16}{value}")
}

/// How many, of what, and the first of them.
fn named(numbers: &[i32], what: &str) -> String {
    let count = grouped(numbers.len() as u64);
    if numbers.is_empty() {
        return format!("{count} {what}");
    }
    let some = numbers
        .iter()
        .take(NAMED)
        .map(|number| format!("#{number}"));
    let more = match numbers.len() > NAMED {
        true => ", …",
        false => "",
    };
    format!(
        "{count} {what}: {}{more}",
        some.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Books that are right: each transfer is booked to its end before the next one.
    fn right() -> (Plan, Books) {
        let plan = Plan::new(300, 6, 1);
        let expected = plan.one_by_one();
        let mut bookings = Vec::new();
        for transfer in &plan.transfers {
            let kinds: &[Kind] = match expected.covered[transfer.number as usize] {
                true => &[Kind::Debit, Kind::Credit],
                false => &[Kind::Refusal],
            };
            let transfer = transfer.number;
            bookings.extend(kinds.iter().map(|kind| Booking {
                transfer,
                kind: *kind,
            }));
        }
        let accounts = expected.accounts;
        let left = 0;
        let books = Books {
            accounts,
            bookings,
            left,
        };
        (plan, books)
    }

    /// Judges books that were changed, and looks for what is said about it.
    fn says(said: &str, change: impl FnOnce(&mut Books)) {
        let (plan, mut books) = right();
        change(&mut books);
        let verdict = Verdict::of(&plan, &books);
        assert!(!verdict.is_good(), "{verdict}");
        let text = verdict.to_string();
        assert!(
            text.contains("NOT BALANCE") && text.contains(said),
            "{text}"
        );
    }

    #[test]
    fn right_books_are_right() {
        let (plan, books) = right();
        let verdict = Verdict::of(&plan, &books);
        assert!(verdict.is_good(), "{verdict}");
        assert!(
            verdict.to_string().contains("balances        6 of 6 "),
            "{verdict}"
        );
    }

    #[test]
    fn a_cent_too_much_is_seen() {
        says("0.01 too much", |books| books.accounts[3].received += 1);
        says("WRONG           1 accounts: #3", |books| {
            books.accounts[3].received += 1;
        });
    }

    #[test]
    fn a_cent_in_the_wrong_account_is_seen() {
        says("balances        4 of 6 ", |books| {
            books.accounts[3].received += 1;
            books.accounts[4].received -= 1;
        });
    }

    #[test]
    fn what_is_lost_is_seen() {
        says("lost            1 of 300: #0", |books| {
            let first = |it: &Booking| it.transfer == 0 && it.kind == Kind::Credit;
            books.bookings.retain(|it| !first(it));
        });
        says("lost            1 of 300: #0", |books| {
            books.bookings.retain(|it| it.transfer != 0);
        });
        says("LEFT            1 ", |books| books.left = 1);
    }

    #[test]
    fn what_is_booked_twice_is_seen() {
        for kind in [Kind::Debit, Kind::Refusal, Kind::Credit] {
            says("booked twice    1 of 300: #", |books| {
                let booked = books
                    .bookings
                    .iter()
                    .position(|it| it.kind == kind)
                    .unwrap();
                books.bookings.insert(booked, books.bookings[booked]);
            });
        }
    }

    #[test]
    fn what_is_judged_wrongly_is_seen() {
        says("refused         1 wrongly", |books| {
            let refused = |it: &&mut Booking| it.kind == Kind::Refusal;
            let booking = books.bookings.iter_mut().find(refused).unwrap();
            booking.kind = Kind::Debit;
        });
    }

    #[test]
    fn what_is_out_of_order_is_seen() {
        for is_credit in [false, true] {
            says("reordered       1 of 300: #", |books| {
                let (plan, _) = right();
                // Two that nothing stands between but what is theirs.
                let of = |it: &Booking| {
                    let transfer = &plan.transfers[it.transfer as usize];
                    let is_credit = it.kind == Kind::Credit;
                    (transfer.from, is_credit.then_some(transfer.to))
                };
                let first = books
                    .bookings
                    .iter()
                    .position(|it| of(it).1.is_some() == is_credit)
                    .unwrap();
                let key = of(&books.bookings[first]);
                let second = (first + 1..books.bookings.len())
                    .find(|at| of(&books.bookings[*at]) == key)
                    .unwrap();
                books.bookings.swap(first, second);
            });
        }
    }
}
