//! Whether it was right, by what the sink has taken.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::order::Order;
use crate::say::grouped;
use crate::sink::{Entry, What};

/// What is wrong, and what was to be expected.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    orders: u64,
    customers: u64,
    /// Orders that were never handled.
    pub(crate) lost: u64,
    /// Orders whose first handling came after that of a later one of their customer.
    pub(crate) reordered: u64,
    /// Handlings that ended after another one of their customer had begun.
    pub(crate) at_once: u64,
    /// Entries with a lower token than one before of their customer.
    pub(crate) stale: u64,
    /// Handled once more: they were in flight, or done and not confirmed, when their worker was killed or
    /// paused.
    pub(crate) again: u64,
    /// Handled once more although no worker was killed or paused that had them.
    pub(crate) unexplained: u64,
    /// What the sink has refused.
    refused: u64,
}

impl Verdict {
    /// `faulty` are the workers that were killed or paused.
    pub(crate) fn of(
        orders: &[Order],
        journal: &[Entry],
        refused: u64,
        faulty: &HashSet<u32>,
    ) -> Self {
        let mut verdict = Self {
            orders: orders.len() as u64,
            refused,
            ..Self::default()
        };
        let mut customers: HashMap<&str, Customer> = HashMap::new();
        for entry in journal {
            let customer = customers.entry(&entry.order.customer).or_default();
            customer.follow(entry, faulty, &mut verdict);
        }
        verdict.customers = customers.len() as u64;
        let done = |order: &&Order| {
            let customer = customers.get(order.customer.as_str());
            customer.is_some_and(|customer| customer.done.contains_key(&order.number))
        };
        verdict.lost = orders.iter().filter(|order| !done(order)).count() as u64;
        verdict
    }

    pub(crate) fn is_good(&self) -> bool {
        let wrong = [
            self.lost,
            self.reordered,
            self.at_once,
            self.stale,
            self.unexplained,
        ];
        wrong.iter().all(|count| *count == 0)
    }
}

#[derive(Default)]
struct Customer {
    /// The handling that has begun and not ended.
    open: Option<(u32, u64, u32)>,
    token: u64,
    /// By number, with the worker that has done it last.
    done: HashMap<u32, u32>,
    next: u32,
}

impl Customer {
    fn follow(&mut self, entry: &Entry, faulty: &HashSet<u32>, verdict: &mut Verdict) {
        verdict.stale += u64::from(entry.token < self.token);
        self.token = self.token.max(entry.token);
        let (number, worker) = (entry.order.number, entry.worker);
        let this = (number, entry.token, worker);
        match entry.what {
            What::Start => self.open = Some(this),
            What::End => {
                verdict.at_once += u64::from(self.open.take() != Some(this));
                if let Some(by) = self.done.insert(number, worker) {
                    match faulty.contains(&by) {
                        true => verdict.again += 1,
                        false => verdict.unexplained += 1,
                    }
                } else {
                    verdict.reordered += u64::from(number != self.next);
                    self.next = number + 1;
                }
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lost, reordered, ..
        } = self;
        let (orders, customers) = (grouped(self.orders), grouped(self.customers));
        writeln!(f, "lost            {lost} of {orders}")?;
        writeln!(
            f,
            "reordered       {reordered}, by the first handling, for {customers} customers"
        )?;
        writeln!(
            f,
            "at once         {} of a customer, over all processes",
            self.at_once
        )?;
        writeln!(
            f,
            "stale           {} writes with a token of the past were taken",
            self.stale
        )?;
        writeln!(
            f,
            "refused         {} writes with a token of the past were not",
            self.refused
        )?;
        writeln!(
            f,
            "again           {} had no ack when their worker was killed or paused",
            self.again
        )?;
        writeln!(f, "without reason  {}", self.unexplained)?;
        match self.is_good() {
            true => write!(f, "verdict         the order is proved"),
            false => write!(f, "verdict         THE PROOF DOES NOT HOLD"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(number: u32) -> Order {
        Order {
            customer: "a".to_owned(),
            number,
        }
    }

    fn both(worker: u32, number: u32, token: u64) -> [Entry; 2] {
        [What::Start, What::End].map(|what| Entry {
            what,
            order: order(number),
            token,
            worker,
        })
    }

    fn judged(journal: &[Entry], faulty: &[u32]) -> Verdict {
        let faulty = faulty.iter().copied().collect();
        Verdict::of(&[order(0), order(1)], journal, 0, &faulty)
    }

    #[test]
    fn what_is_in_order_is_good_and_each_fault_is_found() {
        let (first, second) = (both(1, 0, 5), both(1, 1, 6));
        assert!(judged(&[first.clone(), second.clone()].concat(), &[]).is_good());
        assert_eq!(judged(&first, &[]).lost, 1);
        let turned = [both(1, 1, 5), both(1, 0, 6)].concat();
        assert_eq!(judged(&turned, &[]).reordered, 2);
        let crossed = [&first[..1], &second[..1], &first[1..], &second[1..]].concat();
        assert_eq!(judged(&crossed, &[]).at_once, 2);
        let stale = [second.clone(), first.clone()].concat();
        assert_eq!(judged(&stale, &[]).stale, 2);
    }

    #[test]
    fn only_what_a_faulty_worker_had_may_come_again() {
        let done = [both(1, 0, 5), both(1, 1, 6)].concat();
        let again = [&done[..], &both(2, 1, 7)].concat();
        assert_eq!(judged(&again, &[]).unexplained, 1);
        let verdict = judged(&again, &[1]);
        assert!(verdict.is_good() && verdict.again == 1, "{verdict:?}");
        let cut_off = [&done[..3], &both(2, 1, 7)].concat();
        assert!(judged(&cut_off, &[1]).is_good());
    }
}
