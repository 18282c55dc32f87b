//! Who orders what.

use std::time::Duration;

use crate::ledger::now_us;
use crate::order::Order;

/// The user whose orders take long, and how long.
pub(crate) const SLOW: &str = "slow";
pub(crate) const SLOW_TAKES: Duration = Duration::from_millis(700);

/// The user whose orders the bank declines.
pub(crate) const POOR: &str = "poor";

/// How many orders the two have.
const SLOW_ORDERS: u32 = 16;
const POOR_ORDERS: u32 = 12;

/// How many orders the others have, roughly.
const EACH: u32 = 10;

/// An order of the plan: its user, and its place among the orders of that user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) user: u32,
    pub(crate) number: u32,
}

/// All orders, by user.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Begins all ids, so that those of an earlier run in the same directory are others.
    run: String,
    users: Vec<User>,
}

#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) orders: u32,
    takes_ms: u64,
    declined: u32,
}

impl User {
    /// One of the thousands.
    pub(crate) fn is_usual(&self) -> bool {
        self.takes_ms <= 2 && self.declined == 0
    }
}

impl Plan {
    pub(crate) fn new(orders: u32) -> Self {
        let run = format!("{:x}", now_us());
        let slow = SLOW_ORDERS.min(orders / 10);
        let poor = POOR_ORDERS.min(orders / 10);
        let rest = orders - slow - poor;
        let usual = (rest / EACH).clamp(1, 5_000);
        let mut users = vec![
            User {
                name: format!("{SLOW}-{run}"),
                orders: slow,
                takes_ms: SLOW_TAKES.as_millis() as u64,
                declined: 0,
            },
            User {
                name: format!("{POOR}-{run}"),
                orders: poor,
                takes_ms: 20,
                declined: crate::shop::MOST_ATTEMPTS,
            },
        ];
        users.extend((0..usual).map(|n| User {
            name: format!("user-{n}-{run}"),
            orders: rest / usual + u32::from(n < rest % usual),
            takes_ms: 2,
            declined: 0,
        }));
        Self { run, users }
    }

    pub(crate) fn users(&self) -> &[User] {
        &self.users
    }

    pub(crate) fn user(&self, place: Place) -> &User {
        &self.users[place.user as usize]
    }

    pub(crate) fn orders(&self) -> u32 {
        self.users.iter().map(|user| user.orders).sum()
    }

    pub(crate) fn order(&self, place: Place) -> Order {
        let user = self.user(place);
        Order {
            id: self.id(place),
            user: user.name.clone(),
            cents: 100 + u64::from(place.number),
            takes_ms: user.takes_ms,
            declined: user.declined,
        }
    }

    pub(crate) fn id(&self, place: Place) -> String {
        format!("{}.{}.{}", self.run, place.user, place.number)
    }

    /// The order with this id: `None` if it is of another run, and an error if it was never sent.
    pub(crate) fn place(&self, id: &str) -> Option<Result<Place, String>> {
        let rest = id.strip_prefix(&*self.run)?.strip_prefix('.')?;
        let place = rest.split_once('.').and_then(|(user, number)| {
            let place = Place {
                user: user.parse().ok()?,
                number: number.parse().ok()?,
            };
            let user = self.users.get(place.user as usize)?;
            (place.number < user.orders).then_some(place)
        });
        Some(place.ok_or_else(|| id.to_owned()))
    }

    /// An order, for people.
    pub(crate) fn name(&self, place: Place) -> String {
        let name = &self.user(place).name;
        let name = name.strip_suffix(&*self.run).unwrap_or(name);
        format!("{}#{}", name.trim_end_matches('-'), place.number + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orders_are_those_that_were_asked_for() {
        for orders in [100, 101, 999, 30_000, 123_457] {
            assert_eq!(Plan::new(orders).orders(), orders);
        }
        assert!(Plan::new(30_000).users().len() > 2_900);
    }

    #[test]
    fn an_id_leads_to_its_order_and_to_no_other() {
        let plan = Plan::new(100);
        let place = Place { user: 2, number: 1 };
        assert_eq!(plan.place(&plan.order(place).id), Some(Ok(place)));
        assert_eq!(plan.place("another.2.1"), None);
        let beyond = plan.id(Place {
            user: 2,
            number: 99,
        });
        assert_eq!(plan.place(&beyond), Some(Err(beyond)));
        assert_eq!(plan.name(place), "user-0#2");
    }
}
