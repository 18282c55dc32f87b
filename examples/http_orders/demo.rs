//! The whole thing against itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::app::{LANE_CAPACITY, Lanes};
use crate::client::{Client, Failure};
use crate::shop::Handled;

/// Shows what a newcomer should see. The error says what was not as it should be.
pub(crate) async fn show(address: SocketAddr, lanes: &Lanes) -> Result<(), Failure> {
    let demo = Demo {
        client: Client::new(address),
        lanes: lanes.clone(),
        sent: 0,
        answered: Arc::default(),
    };
    demo.run().await
}

struct Demo {
    client: Client,
    lanes: Lanes,
    sent: usize,
    answered: Arc<AtomicUsize>,
}

impl Demo {
    async fn run(mut self) -> Result<(), Failure> {
        println!("\n1. A slow user sends {LANE_CAPACITY} orders, each of which takes 4 seconds.");
        let mut slow = JoinSet::new();
        for n in 1..=LANE_CAPACITY {
            self.send(&mut slow, "slow", format!("cake {n}"), 4_000)
                .await?;
        }
        println!("   The lane is full, and the next one is answered at once:");
        let (status, body) = self.client.order("slow", "one more", 4_000).await?;
        println!("   {status}: {body}");

        println!("\n2. Beside it ann sends {LANE_CAPACITY} orders, over a connection each.");
        let began = Instant::now();
        let mut anns = JoinSet::new();
        let mut wanted = Vec::new();
        for n in 1..=LANE_CAPACITY {
            wanted.push(format!("tea {n}"));
            self.send(&mut anns, "ann", format!("tea {n}"), 30).await?;
        }
        while let Some(answered) = anns.join_next().await {
            answered??;
        }
        println!(
            "   All answered after {} ms; of the slow user's, {} of {LANE_CAPACITY} are.",
            began.elapsed().as_millis(),
            finished(&mut slow)
        );
        let body = self.client.get("/orders/ann").await?;
        let handled: Vec<Handled> = serde_json::from_str(&body)?;
        let handled: Vec<_> = handled.into_iter().map(|handled| handled.item).collect();
        println!("   GET /orders/ann: {}", handled.join(", "));
        if handled != wanted {
            return Err(format!("sent as {wanted:?}, handled as {handled:?}").into());
        }
        println!("   As they were sent, one at a time.");

        println!("\n3. The slow user's clients hang up: their orders leave the lane.");
        slow.shutdown().await;
        self.until("the lane is empty", |demo| demo.lanes.is_empty())
            .await?;
        println!("   {} lanes are left.", self.lanes.lanes());

        println!("\n4. GET /metrics, the lines without buckets:");
        let body = self.client.get("/metrics").await?;
        let told = [
            "orders_",
            "keylane_accepted",
            "keylane_settled",
            "keylane_retries",
        ];
        for line in body.lines() {
            if told.iter().any(|name| line.starts_with(name)) {
                println!("   {line}");
            }
        }
        println!();
        Ok(())
    }

    /// Sends an order, and waits until it stands in its lane: then the next one comes behind it.
    async fn send(
        &mut self,
        answers: &mut JoinSet<Result<(), Failure>>,
        user: &'static str,
        item: String,
        takes_ms: u64,
    ) -> Result<(), Failure> {
        let (client, answered) = (self.client.clone(), Arc::clone(&self.answered));
        answers.spawn(async move {
            let (status, body) = client.order(user, &item, takes_ms).await?;
            answered.fetch_add(1, Ordering::AcqRel);
            if status.is_success() {
                Ok(())
            } else {
                Err(format!("{item}: {status}: {body}").into())
            }
        });
        self.sent += 1;
        self.until("an order stands in its lane", |demo| {
            demo.lanes.len() + demo.answered.load(Ordering::Acquire) >= demo.sent
        })
        .await
    }

    /// No answer over HTTP says when an order has its place, so it looks.
    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let looks = async {
            while !is_so(self) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let looked = timeout(Duration::from_secs(30), looks).await;
        looked.map_err(|_| format!("it does not come about that {what}").into())
    }
}

/// How many have ended; takes them out.
fn finished(answers: &mut JoinSet<Result<(), Failure>>) -> usize {
    std::iter::from_fn(|| answers.try_join_next()).count()
}
