//! Two candidates, one leader: it resigns, is lost, and another one takes over.
//!
//! ```text
//! cargo run --example leader
//! ```
//!
//! Both candidates are in this process, and their store is in memory. With a store that processes
//! share, such as `SqlElections` of `keylane-sql`, the same code elects one leader of a fleet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keylane_leader::{
    Candidate, Career, Elections, End, Following, MemoryElections, Office, Stop, Term,
};
use tokio::time::sleep;

/// Bills customers, once in the whole fleet.
struct Billing {
    name: &'static str,
    started: Instant,
}

impl Billing {
    fn say(&self, what: &str) {
        println!(
            "{:5} ms  {}: {what}",
            self.started.elapsed().as_millis(),
            self.name
        );
    }
}

impl Career for Billing {
    type Error = std::io::Error;

    async fn prepare(&mut self, leader: &Following) -> Result<(), Self::Error> {
        self.say(&format!("prepares, because {} is leaving", leader.leader));
        Ok(())
    }

    async fn inaugurate(&mut self, term: &Term) -> Result<(), Self::Error> {
        self.say(&format!("takes over, under token {}", term.token()));
        Ok(())
    }

    async fn execute(&mut self, _term: &Term, stop: Stop) -> Result<(), Self::Error> {
        let mut bills = 0;
        while !stop.is_requested() {
            sleep(Duration::from_millis(20)).await;
            bills += 1;
        }
        self.say(&format!("stops after {bills} bills"));
        Ok(())
    }

    async fn hand_over(&mut self, _term: &Term, why: End) {
        self.say(&format!("hands over: {why}"));
        sleep(Duration::from_millis(50)).await;
    }
}

fn stand(elections: &Elections, name: &'static str, started: Instant) -> Result<Office, Failure> {
    let candidate = Candidate::builder(elections, "billing")
        .id(name)
        .ttl(Duration::from_secs(1));
    Ok(candidate.run(Billing { name, started })?)
}

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    examples::log_to_stderr("error");
    let started = Instant::now();
    // Two handles, as two processes have.
    let store = Arc::new(MemoryElections::new());
    let (here, there) = (Elections::open(store.clone())?, Elections::open(store)?);
    let anna = stand(&here, "anna", started)?;
    sleep(Duration::from_millis(100)).await;
    let bert = stand(&there, "bert", started)?;
    sleep(Duration::from_millis(200)).await;

    anna.resign()?;
    sleep(Duration::from_millis(400)).await;

    println!("          the leases of bert's process are closed, as if it had died");
    there.close().await;
    // After a second anna may stand again.
    sleep(Duration::from_millis(1_500)).await;
    drop(bert);
    anna.close().await;
    Ok(())
}
