//! What produces the orders, at a steady rate: plain `LPUSH` and `XADD`, as a service in any language would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane_redis::partition_of;
use redis::Client;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::Failure;
use crate::order::{Order, Way};
use crate::sink::connect;
use crate::worker::{LIST, PARTITIONS, STREAM};

/// Orders in a second.
const RATE: u32 = 2_000;

/// So many go in one round trip.
const BATCH: usize = 20;

/// It stops when this is dropped.
pub(crate) struct Producer {
    produced: Arc<AtomicU64>,
    task: JoinHandle<Result<(), Failure>>,
}

impl Producer {
    pub(crate) fn start(url: &str, orders: Vec<(Way, Order)>) -> Result<Self, Failure> {
        let produced = Arc::new(AtomicU64::new(0));
        let client = Client::open(url)?;
        let task = tokio::spawn(produce(client, orders, Arc::clone(&produced)));
        Ok(Self { produced, task })
    }

    /// How many the server has confirmed.
    pub(crate) fn produced(&self) -> u64 {
        self.produced.load(Ordering::Relaxed)
    }

    /// An error if it has failed.
    pub(crate) async fn check(&mut self, orders: u64) -> Result<(), Failure> {
        match self.task.is_finished() && self.produced() < orders {
            true => (&mut self.task).await?,
            false => Ok(()),
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn produce(
    client: Client,
    orders: Vec<(Way, Order)>,
    produced: Arc<AtomicU64>,
) -> Result<(), Failure> {
    let mut link = connect(&client).await?;
    let began = Instant::now();
    for (at, batch) in orders.chunks(BATCH).enumerate() {
        let due = Duration::from_secs(at as u64) * BATCH as u32 / RATE;
        sleep_until(began + due).await;
        let mut pipe = redis::pipe();
        for (way, order) in batch {
            let json = serde_json::to_vec(order)?;
            match way {
                Way::List => pipe.cmd("LPUSH").arg(LIST).arg(json),
                Way::Stream => {
                    let key = order.customer.as_bytes();
                    let stream = format!("{STREAM}:{}", partition_of(key, PARTITIONS));
                    let add = pipe.cmd("XADD").arg(stream).arg("*");
                    add.arg("key").arg(key).arg("payload").arg(json)
                }
            }
            .ignore();
        }
        let () = pipe.query_async(&mut link).await?;
        produced.fetch_add(batch.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}
