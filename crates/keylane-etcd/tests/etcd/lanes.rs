//! Dispatchers whose lanes are leased in etcd.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::{Context, Dispatcher};

use crate::support::{each_kind, leases, new_namespace, shared};

const TTL: Duration = Duration::from_secs(3);
const USERS: u64 = 4;
const ORDERS: u64 = 60;

/// Of one user: how many run it, how often two did, and all tokens in the order of the starts.
#[derive(Default)]
struct Seen {
    running: usize,
    overlaps: usize,
    tokens: Vec<u64>,
}

type Log = Arc<Mutex<HashMap<u64, Seen>>>;

struct Running(Log, u64);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(seen) = self.0.lock().unwrap().get_mut(&self.1) {
            seen.running -= 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_lane_is_in_one_dispatcher() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let log = Log::default();
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let (url, namespace, log) = (server.url(), namespace.clone(), Arc::clone(&log));
            tasks.push(tokio::spawn(dispatch(url, namespace, log)));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), ORDERS);
        }
        let log = log.lock().unwrap();
        assert_eq!(log.len() as u64, USERS);
        for (user, seen) in &*log {
            assert_eq!(seen.overlaps, 0, "{kind}: two at once for {user}");
            assert!(seen.tokens.is_sorted(), "{kind}: a stale token for {user}");
            assert!(
                seen.tokens.first() < seen.tokens.last(),
                "{kind}: one turn for {user}"
            );
        }
    })
    .await;
}

async fn dispatch(url: String, namespace: String, log: Log) -> u64 {
    let leases = leases(&url, &namespace);
    let lanes = leases
        .lanes(TTL, |user: &u64| user.to_be_bytes())
        .unwrap()
        .linger(Duration::from_millis(10));
    let orders = Dispatcher::builder(|order: &u64| order % USERS)
        .leased_by(lanes)
        .spawn(move |context: Context<u64>, order: u64| {
            let log = Arc::clone(&log);
            async move {
                let token = context.lease_token().expect("it has a lease");
                let _running = start(&log, order % USERS, token);
                tokio::time::sleep(Duration::from_millis(order % 3)).await;
                Ok::<_, &'static str>(())
            }
        })
        .unwrap();
    for order in 0..ORDERS {
        orders.send(order).await.unwrap();
        // Longer than the leases linger, now and then.
        let pause = if order % 20 == 19 { 60 } else { 1 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    let report = orders.drain().await;
    leases.close().await;
    report.done
}

fn start(log: &Log, user: u64, token: u64) -> Running {
    let mut users = log.lock().unwrap();
    let seen = users.entry(user).or_default();
    seen.running += 1;
    seen.overlaps += usize::from(seen.running > 1);
    seen.tokens.push(token);
    Running(Arc::clone(log), user)
}
