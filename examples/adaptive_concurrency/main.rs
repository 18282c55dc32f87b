//! A limit that follows a handler whose capacity changes.
//!
//! ```text
//! cargo run --release --example adaptive_concurrency
//! ```
//!
//! The handler asks a service that has eight places, of which it loses six after four seconds. Four
//! seconds later it has sixteen. The dispatcher is not told: it measures how long its attempts take.
//! Ten thousand senders would have more in flight at any moment. It takes 14 seconds, prints what it saw,
//! and draws it, into the system's folder for temporary files or to `--out FILE`. `RUST_LOG=keylane=info`
//! logs each attempt on stderr.

mod picture;
mod service;

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use keylane::{Adaptive, Dispatcher};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use picture::{Picture, Point};
use service::Service;

/// How many places the service has, and for how long.
const COURSE: [(usize, Duration); 3] = [
    (8, Duration::from_secs(4)),
    (2, Duration::from_secs(4)),
    (16, Duration::from_secs(6)),
];

/// How long a call takes, once it has a place.
const CALL: Duration = Duration::from_millis(10);

/// How often the example looks.
const LOOK: Duration = Duration::from_millis(50);

/// A limit that follows a handler whose capacity changes
#[derive(Parser)]
struct Arguments {
    /// Where the picture goes; `adaptive_concurrency.svg` in the system's temporary folder unless given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    examples::log_to_stderr("warn");
    let arguments = Arguments::parse();
    let service = Service::new(COURSE[0].0);
    let called = service.clone();
    let orders = Dispatcher::builder(|order: &u64| order % 1_000)
        .adaptive_concurrency(Adaptive::between(1, 64))
        .capacity(2_000)
        .spawn(move |_: u64| {
            let called = called.clone();
            async move {
                called.call(CALL).await;
                Ok::<(), Infallible>(())
            }
        })?;

    // More than can be done, all the time.
    let sender = tokio::spawn({
        let orders = orders.clone();
        async move {
            for order in 0.. {
                if orders.send(order).await.is_err() {
                    break;
                }
            }
        }
    });

    println!("seconds  places  limit  latency  done a second");
    let points = watch(&orders, &service).await;
    let report = orders.close().await;
    sender.await?;
    println!("{report}");

    let changes = changes();
    let svg = Picture::new(&points, &changes, CALL).to_string();
    let file = arguments
        .out
        .unwrap_or_else(|| std::env::temp_dir().join("adaptive_concurrency.svg"));
    std::fs::write(&file, svg)?;
    println!("the picture: {}", file.display());
    Ok(())
}

/// Changes the service and writes down what the limit does.
async fn watch(orders: &Dispatcher<u64, u64, (), Infallible>, service: &Service) -> Vec<Point> {
    let began = Instant::now();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut points = Vec::new();
    let mut done = 0;
    for (places, lasts) in COURSE {
        service.set_places(places);
        let until = Instant::now() + lasts;
        let mut row = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            looks.tick().await;
            let stats = orders.stats();
            let point = Point {
                seconds: began.elapsed().as_secs_f64(),
                limit: stats.concurrency_limit,
                latency_ms: service.take_latency().as_secs_f64() * 1e3,
            };
            points.push(point);
            if Instant::now() >= row {
                row += Duration::from_secs(1);
                println!(
                    "{:7.1}  {:6}  {:5}  {:4.1} ms  {:13}",
                    point.seconds,
                    places,
                    point.limit,
                    point.latency_ms,
                    stats.done - done
                );
                done = stats.done;
            }
        }
    }
    sleep(LOOK).await;
    points
}

/// When the service has how many places, in seconds; the end comes last.
fn changes() -> Vec<(f64, usize)> {
    let mut at = 0.0;
    let mut changes = Vec::new();
    for (places, lasts) in COURSE {
        changes.push((at, places));
        at += lasts.as_secs_f64();
    }
    changes.push((at, COURSE[COURSE.len() - 1].0));
    changes
}
