//! A rate for all keys together, and who goes first while it is short.
//!
//! ```text
//! cargo run --example rates_and_priorities
//! RUST_LOG=keylane=info cargo run --example rates_and_priorities   # with a line for each attempt, on stderr
//! ```
//!
//! 1. The rate: a mail provider takes ten mails a second and four at once. Twelve users get one
//!    each. The first four go at once, the others follow every 100 ms, and meanwhile nothing holds a
//!    runner.
//! 2. Priorities: newsletters wait for the same provider when three receipts come. The receipts go
//!    first. A user whose newsletter was sent before gets both in the order in which they were sent.
//! 3. The bound: however many receipts come, a newsletter is passed over at most 16 times in a row.

use std::convert::Infallible;
use std::time::Duration;

use keylane::error::BuildError;
use keylane::{Dispatcher, Rate};
use tokio::time::{Instant, sleep};

type Error = Box<dyn std::error::Error>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Receipt,
    Newsletter,
}

#[derive(Debug, Clone, Copy)]
struct Mail {
    user: u32,
    kind: Kind,
}

/// Receipts are class 0, which is the most urgent.
fn class(mail: &Mail) -> u8 {
    match mail.kind {
        Kind::Receipt => 0,
        Kind::Newsletter => 1,
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    examples::log_to_stderr("warn");
    rate().await?;
    priorities().await?;
    bound().await
}

async fn rate() -> Result<(), Error> {
    println!("1. ten mails a second, four at once");
    let mails = provider(Rate::per_second(10).burst(4), true)?;
    for user in 1..=12 {
        let kind = Kind::Newsletter;
        mails.send(Mail { user, kind }).await?;
    }
    sleep(Duration::from_millis(250)).await;
    let stats = mails.stats();
    println!(
        "   {} lanes wait for the rate, and {} handlers are in flight",
        stats.ready, stats.in_flight
    );
    println!("   {}\n", mails.drain().await);
    Ok(())
}

async fn priorities() -> Result<(), Error> {
    println!("2. five newsletters, and then receipts for users 3, 8 and 9");
    let mails = provider(Rate::per_second(10), true)?;
    let newsletters = (1..=5).map(|user| (user, Kind::Newsletter));
    let receipts = [8, 9, 3].map(|user| (user, Kind::Receipt));
    for (user, kind) in newsletters.chain(receipts) {
        mails.send(Mail { user, kind }).await?;
    }
    println!("   {}\n", mails.drain().await);
    Ok(())
}

async fn bound() -> Result<(), Error> {
    println!("3. four newsletters, and then 60 receipts");
    let mails = provider(Rate::per_second(200), false)?;
    let mut newsletters = Vec::new();
    for user in 1..=4 {
        let kind = Kind::Newsletter;
        newsletters.push(mails.submit(Mail { user, kind }).await?);
    }
    for user in 101..=160 {
        let kind = Kind::Receipt;
        mails.send(Mail { user, kind }).await?;
    }
    for (newsletter, user) in newsletters.into_iter().zip(1..) {
        let before = newsletter.await?;
        println!("   the newsletter of user {user} went after {before} other mails");
    }
    println!("   {}", mails.drain().await);
    Ok(())
}

/// A dispatcher whose handler says when it started, and answers how many did before.
fn provider(rate: Rate, tells: bool) -> Result<Dispatcher<u32, Mail, u64, Infallible>, BuildError> {
    let started = Instant::now();
    let count = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    Dispatcher::builder(|mail: &Mail| mail.user)
        .rate(rate)
        .priority(2, class)
        .spawn(move |mail: Mail| {
            let before = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if tells {
                let at = started.elapsed().as_millis();
                println!("   after {at:4} ms: {:?} for user {}", mail.kind, mail.user);
            }
            async move { Ok(before) }
        })
}
