//! Jobs that Ruby pushes for Sidekiq, into the list `queue:default`.

use std::env::var;
use std::time::Duration;

use keylane::source::Source;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_redis::{ListKey, ListQueue, Redis};
use serde::Deserialize;

#[derive(Clone, Deserialize)]
struct Job {
    class: String,
    args: Vec<serde_json::Value>,
    /// Written by the client middleware. A job without one has no order.
    key: Option<String>,
}

async fn perform(job: Job) -> Result<(), String> {
    match job.class.as_str() {
        "BillJob" => println!("bill {:?}", job.args),
        other => return Err(format!("there is no {other} here")),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let redis = Redis::at(&var("REDIS").unwrap_or("redis://localhost".to_owned()))?;
    let queue = ListQueue::builder(&redis, "queue:default")
        .key(ListKey::json("key"))
        .dead_letters()
        .build()?;
    let jobs = Dispatcher::key_by_opt(|job: &Job| job.key.clone())
        .retry(Retry::exponential(Duration::from_millis(100)).max_attempts(3))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(perform)?;
    let source = queue
        .source()
        .decode(|raw| Ok(serde_json::from_slice(&raw.payload)?));
    let intake = jobs.consume(source)?;

    tokio::signal::ctrl_c().await?;
    println!("{}", intake.stop().await);
    Ok(())
}
