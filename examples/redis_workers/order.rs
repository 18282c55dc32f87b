//! The orders, the same ones for the same seed.

use serde::{Deserialize, Serialize};

/// An order. Those of a customer are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) customer: String,
    pub(crate) number: u32,
}

/// Where an order goes: those of a customer all go to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    List,
    Stream,
}

/// Which orders there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) orders: u32,
    pub(crate) customers: u32,
    pub(crate) seed: u64,
}

impl Plan {
    /// All of them, as they are produced. The customers with low numbers order most; every second one by
    /// the stream.
    pub(crate) fn orders(self) -> Vec<(Way, Order)> {
        let mut next = vec![0; self.customers as usize];
        let mut state = self.seed;
        let one = |_| {
            let unit = (random(&mut state) >> 11) as f64 / (1_u64 << 53) as f64;
            let customer = (unit * unit * f64::from(self.customers)) as u32;
            let customer = customer.min(self.customers - 1);
            let counter: &mut u32 = &mut next[customer as usize];
            let order = Order {
                customer: format!("customer-{customer}"),
                number: *counter,
            };
            *counter += 1;
            let way = match customer % 2 {
                0 => Way::List,
                _ => Way::Stream,
            };
            (way, order)
        };
        (0..self.orders).map(one).collect()
    }
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn orders_of_a_customer_are_counted_and_a_seed_repeats_them() {
        let plan = Plan {
            orders: 1_000,
            customers: 7,
            seed: 3,
        };
        let orders = plan.orders();
        assert_eq!(orders, plan.orders());
        assert_ne!(orders, Plan { seed: 4, ..plan }.orders());
        let mut next: HashMap<String, u32> = HashMap::new();
        for (_, order) in orders {
            let expected = next.entry(order.customer).or_default();
            assert_eq!(order.number, *expected);
            *expected += 1;
        }
        assert_eq!(next.len(), 7);
    }
}
