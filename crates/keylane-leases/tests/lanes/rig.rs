//! Dispatchers, and an account of what their handlers do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::{Context, Dispatcher};
use keylane_leases::Leases;
use tokio::time::sleep;

pub(crate) const TTL: Duration = Duration::from_secs(3);
pub(crate) const LINGER: Duration = Duration::from_millis(200);

/// A message: its key, its number, and how long it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) user: u64,
    pub(crate) number: u64,
    pub(crate) takes: Duration,
}

pub(crate) fn order(user: u64, number: u64, takes: Duration) -> Order {
    Order {
        user,
        number,
        takes,
    }
}

pub(crate) type Orders = Dispatcher<u64, Order, u64, &'static str>;

/// An attempt that has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) place: &'static str,
    pub(crate) number: u64,
    pub(crate) token: u64,
    pub(crate) attempt: u32,
}

/// What happens in all places.
#[derive(Clone, Default)]
pub(crate) struct Account(Arc<Mutex<HashMap<u64, User>>>);

#[derive(Default)]
struct User {
    starts: Vec<Start>,
    running: Option<&'static str>,
    most_at_once: usize,
}

struct Running(Account, u64);

impl Account {
    fn start(&self, user: u64, start: Start) -> Running {
        let mut users = self.0.lock().unwrap();
        let of = users.entry(user).or_default();
        let at_once = if of.running.is_some() { 2 } else { 1 };
        of.most_at_once = of.most_at_once.max(at_once);
        of.running = Some(start.place);
        of.starts.push(start);
        Running(self.clone(), user)
    }

    pub(crate) fn running(&self, user: u64) -> Option<&'static str> {
        self.0.lock().unwrap().get(&user).and_then(|of| of.running)
    }

    pub(crate) fn starts(&self, user: u64) -> Vec<Start> {
        let users = self.0.lock().unwrap();
        users.get(&user).map_or(Vec::new(), |of| of.starts.clone())
    }

    /// No two of a key at once, no token lower than one before, and each place in its order.
    pub(crate) fn judge(&self) {
        for (user, of) in &*self.0.lock().unwrap() {
            assert_eq!(of.most_at_once, 1, "two at once for {user}");
            let tokens = of.starts.iter().map(|start| start.token);
            assert!(tokens.is_sorted(), "a stale token for {user}");
            for place in ["here", "there"] {
                let mine = of.starts.iter().filter(|start| start.place == place);
                let numbers = mine.map(|start| start.number);
                assert!(numbers.is_sorted(), "{user} out of order {place}");
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(of) = self.0.0.lock().unwrap().get_mut(&self.1) {
            of.running = None;
        }
    }
}

/// A dispatcher that answers with the token.
pub(crate) fn orders(place: &'static str, leases: &Leases, account: &Account) -> Orders {
    orders_lingering(place, leases, account, LINGER)
}

pub(crate) fn orders_lingering(
    place: &'static str,
    leases: &Leases,
    account: &Account,
    linger: Duration,
) -> Orders {
    let account = account.clone();
    let lanes = leases
        .lanes(TTL, |user: &u64| user.to_be_bytes())
        .unwrap()
        .prefix("orders/")
        .linger(linger);
    Dispatcher::builder(|order: &Order| order.user)
        .leased_by(lanes)
        .spawn(move |context: Context<u64>, order: Order| {
            let account = account.clone();
            async move {
                let token = context.lease_token().expect("it has a lease");
                let _running = account.start(
                    order.user,
                    Start {
                        place,
                        number: order.number,
                        token,
                        attempt: context.attempt(),
                    },
                );
                if !order.takes.is_zero() {
                    sleep(order.takes).await;
                }
                Ok(token)
            }
        })
        .unwrap()
}

/// What the store calls the key.
pub(crate) fn name(user: u64) -> Vec<u8> {
    [b"orders/".as_slice(), &user.to_be_bytes()].concat()
}
