//! The transfers of a run, and what comes of them when they are applied one by one.

use crate::transfer::Transfer;

/// About what an account has in the morning.
const OPENING: u64 = 100_000;

#[derive(Debug)]
pub(crate) struct Plan {
    /// What each account has in the morning, in cents.
    pub(crate) openings: Vec<i64>,
    pub(crate) transfers: Vec<Transfer>,
}

/// What has happened to an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) opening: i64,
    pub(crate) spent: i64,
    pub(crate) received: i64,
}

impl Account {
    pub(crate) fn balance(&self) -> i64 {
        self.opening - self.spent + self.received
    }
}

/// What must come of a plan.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) accounts: Vec<Account>,
    /// By transfer, whether it is covered.
    pub(crate) covered: Vec<bool>,
}

impl Plan {
    /// Random, and the same for the same arguments. The accounts want to spend a little more than they
    /// have, so that some transfers are refused.
    pub(crate) fn new(transfers: u32, accounts: u32, seed: u64) -> Self {
        let mut random = Random(seed);
        let accounts = u64::from(accounts);
        let openings = (0..accounts).map(|_| (OPENING / 2 + random.below(OPENING)) as i64);
        let openings = openings.collect();
        let largest = (OPENING * accounts * 5 / 2 / u64::from(transfers)).max(2);
        let transfers = (0..transfers).map(|number| {
            let from = random.below(accounts);
            let to = (from + 1 + random.below(accounts - 1)) % accounts;
            Transfer {
                number: number as i32,
                from: from as i32,
                to: to as i32,
                cents: 1 + random.below(largest) as i64,
            }
        });
        Self {
            transfers: transfers.collect(),
            openings,
        }
    }

    pub(crate) fn one_by_one(&self) -> Expected {
        self.applied(self.transfers.iter())
    }

    /// The accounts, had the transfers come in the reverse order: how much depends on the order.
    pub(crate) fn reversed(&self) -> Expected {
        self.applied(self.transfers.iter().rev())
    }

    fn applied<'a>(&self, transfers: impl Iterator<Item = &'a Transfer>) -> Expected {
        let account = |opening: &i64| Account {
            opening: *opening,
            ..Account::default()
        };
        let mut accounts: Vec<Account> = self.openings.iter().map(account).collect();
        let mut covered = vec![false; self.transfers.len()];
        for transfer in transfers {
            let from = &mut accounts[transfer.from as usize];
            if from.spent + transfer.cents > from.opening {
                continue;
            }
            from.spent += transfer.cents;
            accounts[transfer.to as usize].received += transfer.cents;
            covered[transfer.number as usize] = true;
        }
        Expected { accounts, covered }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_the_same_again_and_depends_on_its_seed() {
        let plan = Plan::new(500, 10, 7);
        assert_eq!(plan.transfers, Plan::new(500, 10, 7).transfers);
        assert_ne!(plan.transfers, Plan::new(500, 10, 8).transfers);
        assert!(plan.transfers.iter().all(|it| it.from != it.to));
    }

    #[test]
    fn some_are_refused_no_cent_is_lost_and_the_order_matters() {
        for (transfers, accounts) in [(200, 6), (5_000, 50), (20_000, 10_000)] {
            let plan = Plan::new(transfers, accounts, 1);
            let expected = plan.one_by_one();
            let refused = expected.covered.iter().filter(|covered| !**covered).count();
            let refused = refused * 100 / transfers as usize;
            assert!((3..50).contains(&refused), "{refused} %");
            let balances = expected.accounts.iter().map(Account::balance);
            assert_eq!(
                balances.clone().sum::<i64>(),
                plan.openings.iter().sum::<i64>()
            );
            assert!(balances.min() >= Some(0));
            assert_ne!(plan.reversed().accounts, expected.accounts);
        }
    }
}
