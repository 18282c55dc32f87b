//! Sends the orders of the plan, each user's in order, and again what was not answered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use hdrhistogram::Histogram;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::client::Client;
use super::plan::{Place, Plan};
use crate::Failure;
use crate::ledger::now_us;

/// How many clients send at once, each for its own users.
const CLIENTS: usize = 192;

/// How long an order is sent again and again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The load on its way.
#[derive(Debug)]
pub(crate) struct Load {
    clients: JoinSet<Result<Part, Failure>>,
    plan: Arc<Plan>,
    counts: Arc<Counts>,
    started: Instant,
}

/// How far it is.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) orders: u64,
    /// Relaxed, both: they are statistics; the notification is for the demo alone.
    accepted: AtomicU64,
    resent: AtomicU64,
    half: Notify,
}

impl Counts {
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// What was sent, and answered with 202: all of it.
#[derive(Debug)]
pub(crate) struct Sent {
    /// When each order was sent for the first time, in microseconds of the wall clock, by user.
    pub(crate) posted_at: Vec<Vec<u64>>,
    /// How long the answers took, in microseconds.
    pub(crate) latencies: Histogram<u64>,
    /// How often an order was sent again because there was no answer, or a refusal.
    pub(crate) resent: u64,
    pub(crate) elapsed: Duration,
}

/// What one client has sent.
#[derive(Debug)]
struct Part {
    posted_at: Vec<(Place, u64)>,
    latencies: Histogram<u64>,
}

impl Load {
    pub(crate) fn start(plan: Arc<Plan>, client: Client) -> Self {
        let counts = Arc::new(Counts {
            orders: u64::from(plan.orders()),
            accepted: AtomicU64::new(0),
            resent: AtomicU64::new(0),
            half: Notify::new(),
        });
        // The two special ones have a client each, so that they are early.
        let mut shares = vec![vec![0], vec![1]];
        shares.resize(CLIENTS + 2, Vec::new());
        for user in 2..plan.users().len() {
            shares[2 + user % CLIENTS].push(user as u32);
        }
        let clients = shares.into_iter().map(|users| {
            let sender = Sender {
                plan: Arc::clone(&plan),
                client: client.clone(),
                counts: Arc::clone(&counts),
                part: Part {
                    posted_at: Vec::new(),
                    latencies: latencies(),
                },
            };
            sender.send_all(users)
        });
        Self {
            clients: clients.collect(),
            plan,
            counts,
            started: Instant::now(),
        }
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Waits until half of all orders are accepted.
    pub(crate) async fn half(&self) {
        self.counts.half.notified().await;
    }

    /// Waits until all of them are.
    pub(crate) async fn finished(mut self) -> Result<Sent, Failure> {
        let users = self.plan.users().iter();
        let mut sent = Sent {
            posted_at: users.map(|user| vec![0; user.orders as usize]).collect(),
            latencies: latencies(),
            resent: 0,
            elapsed: Duration::ZERO,
        };
        while let Some(part) = self.clients.join_next().await {
            let part = part??;
            sent.latencies.add(part.latencies)?;
            for (place, at) in part.posted_at {
                sent.posted_at[place.user as usize][place.number as usize] = at;
            }
        }
        sent.resent = self.counts.resent.load(Ordering::Relaxed);
        sent.elapsed = self.started.elapsed();
        Ok(sent)
    }
}

pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new(3).expect("3 digits are allowed")
}

struct Sender {
    plan: Arc<Plan>,
    client: Client,
    counts: Arc<Counts>,
    part: Part,
}

impl Sender {
    /// One order of each user in turn. The next one of a user is sent when the last one was answered: that
    /// is the order which must hold.
    async fn send_all(mut self, users: Vec<u32>) -> Result<Part, Failure> {
        let first = |user| Place { user, number: 0 };
        let mut turns: VecDeque<_> = users.into_iter().map(first).collect();
        while let Some(mut place) = turns.pop_front() {
            if place.number < self.plan.user(place).orders {
                self.send(place).await?;
                place.number += 1;
                turns.push_back(place);
            }
        }
        Ok(self.part)
    }

    async fn send(&mut self, place: Place) -> Result<(), Failure> {
        let order = self.plan.order(place);
        let (first, posted_at) = (Instant::now(), now_us());
        loop {
            let began = Instant::now();
            let why = match self.client.order(&order).await {
                Ok((StatusCode::ACCEPTED, _)) => {
                    self.part
                        .latencies
                        .record(began.elapsed().as_micros() as u64)?;
                    self.part.posted_at.push((place, posted_at));
                    break;
                }
                // It may be stored or not; its id keeps it from being stored twice.
                Err(error) => error.to_string(),
                Ok((status, body)) if is_for_now(status) => body,
                Ok((status, body)) => return Err(format!("{}: {status}: {body}", order.id).into()),
            };
            if first.elapsed() > PATIENCE {
                return Err(format!("{} is not accepted: {why}", order.id).into());
            }
            self.counts.resent.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(50)).await;
        }
        let accepted = self.counts.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        if accepted == self.counts.orders.div_ceil(2) {
            self.counts.half.notify_one();
        }
        Ok(())
    }
}

/// Whether the same order may be accepted later.
fn is_for_now(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}
