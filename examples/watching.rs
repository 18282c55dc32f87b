//! Which key is in trouble? What happens as it happens, and then the hottest keys.
//!
//! ```text
//! cargo run --example watching
//! RUST_LOG=keylane=info cargo run --example watching   # with a line for each attempt, on stderr
//! ```
//!
//! A hundred devices report. Three of them make trouble: one fails and is halted, one is blocked in
//! its handler, one floods its lane. Look at the events, and at which device is hottest by what:
//!
//! - by depth, the one that floods;
//! - by age, the one that is halted and the one that is blocked, though few messages wait there;
//! - by busy time, the one that is blocked, and the one that floods, whose handler always waits.

use std::time::Duration;

use keylane::watching::{Event, HotBy};
use keylane::{Dispatcher, OnExhausted, Overflow};

const FAILING: u32 = 13;
const BLOCKED: u32 = 42;
const FLOODING: u32 = 77;

#[derive(Debug, thiserror::Error)]
#[error("the reading makes no sense")]
struct NoSense;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    examples::log_to_stderr("off");
    let devices = Dispatcher::builder(|device: &u32| *device)
        .lane_capacity(200, Overflow::DropOldest)
        .on_exhausted(OnExhausted::Halt)
        .stuck_after(Duration::from_millis(100))
        .event_capacity(256)
        .spawn(|device: u32| async move {
            match device {
                FAILING => Err(NoSense),
                BLOCKED => std::future::pending().await,
                FLOODING => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    Ok(())
                }
                _ => Ok(()),
            }
        })?;

    // A subscriber in a task of its own. The dispatcher does not wait for it, however slow it is.
    let mut events = devices.events();
    let watcher = tokio::spawn(async move {
        let mut dropped = 0;
        while let Some(event) = events.recv().await {
            match event {
                // One of these for each message: the first will do.
                Event::Overflowed { key, .. } if dropped == 0 => {
                    println!("device {key}: its lane is full, the oldest are dropped");
                    dropped += 1;
                }
                Event::Overflowed { .. } => dropped += 1,
                Event::Halted { key, why, .. } => println!("device {key}: halted, {why}"),
                other => println!("{other:?}"),
            }
        }
        println!("{dropped} messages dropped, {} events lost", events.lost());
    });

    for round in 0..20 {
        for device in 0..100 {
            devices.send(device).await?;
        }
        for _ in 0..50 {
            devices.send(FLOODING).await?;
        }
        if round == 0 {
            println!("the first reports of 100 devices are in");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    for by in [HotBy::Depth, HotBy::Age, HotBy::Busy] {
        println!("\nhottest by {by:?}:     depth      age     busy");
        for hot in devices.hottest(3, by).await {
            let (age, busy) = (hot.age.as_millis(), hot.busy.as_millis());
            println!(
                "  device {:<12} {:>6} {age:>5} ms {busy:>5} ms",
                hot.key, hot.depth
            );
        }
    }
    if let Some(top) = devices.hottest(1, HotBy::Age).await.first() {
        println!("\ndevice {}: {:#?}", top.key, devices.inspect(&top.key));
    }

    let report = devices.abort().await;
    watcher.await?;
    println!("{report}");
    Ok(())
}
