//! Whether each order was handled, in order for each customer, and never two of a customer at once.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::journal::{Entry, Handling};
use crate::order::Order;
use crate::say::grouped;

/// What the group had committed when a worker was dead: for each partition the offset, and what was done
/// beyond it.
pub(crate) type Committed = HashMap<i32, (u64, keylane::source::frontier::Beyond)>;

/// What the journal shows. All lists but `in_flight` and `not_committed` are to be empty.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    orders: usize,
    customers: usize,
    lost: usize,
    /// Begun before all earlier ones of the customer had ended; or again and behind a later one, although
    /// no worker was killed in between.
    reordered: usize,
    /// Begun while another one of the customer was being handled.
    at_once: usize,
    /// Handled once more, because the worker that had begun it was killed.
    in_flight: usize,
    /// Handled once more: the worker that was killed had ended it, and had not committed it.
    not_committed: usize,
    /// Handled once more without such a reason.
    unexplained: usize,
}

/// How far a customer is.
#[derive(Default)]
struct Progress {
    /// So many of its first orders have ended.
    ended: u32,
    /// The order that was begun last, since a worker was killed.
    begun: Option<u32>,
}

impl Verdict {
    /// `committed` was read after the worker was dead, before others had its partitions.
    pub(crate) fn of(orders: &[Order], journal: &[Entry], committed: &Committed) -> Self {
        let mut verdict = Self {
            orders: orders.len(),
            ..Self::default()
        };
        let mut running: HashMap<u32, Handling> = HashMap::new();
        let mut ended: HashMap<(u32, u32), Handling> = HashMap::new();
        let mut cut_off: HashSet<(u32, u32)> = HashSet::new();
        let mut progress: HashMap<u32, Progress> = HashMap::new();
        let mut dead = HashSet::new();
        for entry in journal {
            match entry {
                Entry::Start(one) => {
                    let (customer, number) = one.order;
                    if running.insert(customer, *one).is_some() {
                        verdict.at_once += 1;
                    }
                    let was_killed = |before: &Handling| dead.contains(&before.worker);
                    let progress = progress.entry(customer).or_default();
                    let is_next = match ended.contains_key(&one.order) {
                        true => progress.begun.is_none_or(|begun| begun < number),
                        false => number == progress.ended,
                    };
                    if !is_next {
                        verdict.reordered += 1;
                    }
                    progress.begun = Some(number);
                    match ended.get(&one.order) {
                        Some(before) if was_killed(before) && !is_in(committed, before) => {
                            verdict.not_committed += 1;
                        }
                        Some(_) => verdict.unexplained += 1,
                        None if cut_off.remove(&one.order) => verdict.in_flight += 1,
                        None => {}
                    }
                }
                Entry::End(one) => {
                    let (customer, number) = one.order;
                    let progress = progress.entry(customer).or_default();
                    if progress.ended == number {
                        progress.ended += 1;
                    }
                    if running.get(&customer) == Some(one) {
                        running.remove(&customer);
                    }
                    ended.insert(one.order, *one);
                }
                Entry::Dead(worker) => {
                    dead.insert(*worker);
                    let died = running.extract_if(|_, one| one.worker == *worker);
                    cut_off.extend(died.map(|(_, one)| one.order));
                    // Its orders may come again, from one of them on.
                    progress.values_mut().for_each(|one| one.begun = None);
                }
            }
        }
        let lost = |order: &&Order| !ended.contains_key(&(order.customer, order.number));
        verdict.lost = orders.iter().filter(lost).count();
        verdict.customers = progress.len();
        verdict
    }

    pub(crate) fn is_good(&self) -> bool {
        self.lost + self.reordered + self.at_once + self.unexplained == 0
    }
}

fn is_in(committed: &Committed, one: &Handling) -> bool {
    let of = committed.get(&one.partition);
    of.is_some_and(|(offset, beyond)| one.offset < *offset || beyond.contains(one.offset))
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let say = |number: usize| grouped(number as u64);
        let (orders, customers) = (say(self.orders), say(self.customers));
        writeln!(f, "lost            {} of {orders}", say(self.lost))?;
        writeln!(
            f,
            "reordered       {}, by the first handling, for {customers} customers",
            say(self.reordered)
        )?;
        writeln!(
            f,
            "at once         {} of a customer, over all processes",
            say(self.at_once)
        )?;
        writeln!(
            f,
            "handled again   {}: {} in flight when the worker was killed,\n                \
             {} handled by it and not committed yet",
            say(self.in_flight + self.not_committed + self.unexplained),
            say(self.in_flight),
            say(self.not_committed),
        )?;
        writeln!(f, "without reason  {}", say(self.unexplained))?;
        match self.is_good() {
            true => write!(f, "verdict         the order is proved"),
            false => write!(f, "verdict         THE PROOF DOES NOT HOLD"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(worker: u32, number: u32) -> Handling {
        let customer = 0;
        let order = Order { customer, number };
        Handling::new(worker, 0, u64::from(number), order)
    }

    fn both(worker: u32, number: u32) -> [Entry; 2] {
        let one = one(worker, number);
        [Entry::Start(one), Entry::End(one)]
    }

    fn judged(journal: &[Entry]) -> Verdict {
        let orders = [0, 1].map(|number| Order {
            customer: 0,
            number,
        });
        let committed = Committed::from([(0, (1, Default::default()))]);
        Verdict::of(&orders, journal, &committed)
    }

    #[test]
    fn what_is_in_order_is_good_and_each_fault_is_found() {
        let (first, second) = (both(1, 0), both(1, 1));
        assert!(judged(&[first.clone(), second.clone()].concat()).is_good());
        assert_eq!(judged(&first).lost, 1);
        assert_eq!(
            judged(&[second.clone(), first.clone()].concat()).reordered,
            1
        );
        let crossed = [&first[..1], &second[..1], &first[1..], &second[1..]].concat();
        assert_eq!(judged(&crossed).at_once, 1);
        let twice = [first.clone(), second.clone(), second].concat();
        assert_eq!(judged(&twice).unexplained, 1);
    }

    #[test]
    fn only_what_was_not_committed_by_the_dead_may_come_again() {
        let done = [both(1, 0), both(1, 1)].concat();
        let dead = [Entry::Dead(1)];
        let again = judged(&[&done[..], &dead, &both(2, 1)].concat());
        assert!(again.is_good() && again.not_committed == 1, "{again:?}");
        let committed = judged(&[&done[..], &dead, &both(2, 0)].concat());
        assert_eq!(committed.unexplained, 1, "{committed:?}");
        let cut_off = judged(&[&done[..3], &dead, &both(2, 1)].concat());
        assert!(cut_off.is_good() && cut_off.in_flight == 1, "{cut_off:?}");
    }

    /// The next owner begins with the order that the kill has interrupted, and not behind it.
    #[test]
    fn what_the_dead_had_comes_again_in_order_and_before_what_is_new() {
        let (first, second) = (both(1, 0), both(1, 1));
        let dead = [Entry::Dead(1)];
        let behind = [&first[..1], &dead, &both(2, 1), &both(2, 0)].concat();
        assert_eq!(judged(&behind).reordered, 1);
        let none = Committed::new();
        let orders = [0, 1].map(|number| Order {
            customer: 0,
            number,
        });
        let again = |numbers: [u32; 2]| {
            let again = numbers.map(|number| both(2, number)).concat();
            let journal = [&first[..], &second, &dead, &again].concat();
            Verdict::of(&orders, &journal, &none)
        };
        assert!(again([0, 1]).is_good());
        let turned = again([1, 0]);
        assert!(!turned.is_good(), "{turned:?}");
    }
}
