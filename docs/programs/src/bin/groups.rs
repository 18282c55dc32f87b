//! Jobs in a list, in groups: one job of a group at a time, five a second for each group, and a
//! hundred at once in all.

use std::env::var;
use std::time::Duration;

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted, Rate, Retry};
use keylane_redis::{ListKey, ListQueue, Redis};

async fn job(raw: RawMessage) -> Result<(), std::io::Error> {
    println!("{:?}: {:?}", raw.key, raw.payload);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let redis = Redis::at(&var("REDIS").unwrap_or("redis://localhost".to_owned()))?;
    let queue = ListQueue::builder(&redis, "jobs")
        .key(ListKey::json("group"))
        .dead_letters()
        .build()?;
    let jobs = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
        .concurrency(100)
        .rate_per_key(Rate::per_second(5)) // of this process
        .retry(Retry::exponential(Duration::from_secs(1)).max_attempts(3))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(job)?;
    let intake = jobs.consume(queue.source())?;

    tokio::signal::ctrl_c().await?;
    println!("{}", intake.stop().await);
    Ok(())
}
