//! Dispatchers whose lanes are leased in a real database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::{Context, Dispatcher};
use keylane_leases::{Leases, Settings};
use keylane_sql::{Database, SqlLeases, Tables};

use crate::support::{Kind, Place};

const TTL: Duration = Duration::from_secs(2);
const USERS: u64 = 5;
const ORDERS: u64 = 100;

/// Of one user: which place runs it, how often two did, and all tokens in the order of the starts.
#[derive(Default)]
struct Seen {
    running: usize,
    overlaps: usize,
    starts: Vec<(usize, u64)>,
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
async fn postgres_gives_each_lane_to_one_dispatcher() {
    gives_each_lane_to_one_dispatcher(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_gives_each_lane_to_one_dispatcher() {
    gives_each_lane_to_one_dispatcher(Kind::MariaDb).await;
}

async fn gives_each_lane_to_one_dispatcher(kind: Kind) {
    let place = Place::new(kind).await;
    let log = Log::default();
    let mut tasks = Vec::new();
    for number in 0..2 {
        let (address, log) = (place.address.clone(), Arc::clone(&log));
        tasks.push(tokio::spawn(async move {
            let database = Database::connect(&address).await.unwrap();
            let store = SqlLeases::open(&database, &Tables::new()).await.unwrap();
            let settings = Settings::new().look_again(Duration::from_millis(30));
            let leases = Leases::open_with(Arc::new(store), settings).unwrap();
            let lanes = leases
                .lanes(TTL, |user: &u64| user.to_be_bytes())
                .unwrap()
                .linger(Duration::from_millis(10));
            let orders = Dispatcher::builder(|order: &u64| order % USERS)
                .leased_by(lanes)
                .spawn(move |context: Context<u64>, order: u64| {
                    let log = Arc::clone(&log);
                    async move {
                        let user = order % USERS;
                        let token = context.lease_token().expect("it has a lease");
                        let _running = start(&log, user, number, token);
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
        }));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap(), ORDERS);
    }
    let log = log.lock().unwrap();
    assert_eq!(log.len() as u64, USERS);
    let mut turns = 0;
    for (user, seen) in &*log {
        assert_eq!(seen.overlaps, 0, "two at once for {user}");
        let tokens = seen.starts.iter().map(|start| start.1);
        assert!(tokens.is_sorted(), "a stale token for {user}");
        let pairs = seen.starts.windows(2);
        turns += pairs.filter(|two| two[0].0 != two[1].0).count();
    }
    println!("{kind:?}: {turns} turns");
    assert!(turns as u64 >= USERS, "each place has had each key");
}

fn start(log: &Log, user: u64, number: usize, token: u64) -> Running {
    let mut users = log.lock().unwrap();
    let seen = users.entry(user).or_default();
    seen.running += 1;
    seen.overlaps += usize::from(seen.running > 1);
    seen.starts.push((number, token));
    Running(Arc::clone(log), user)
}
