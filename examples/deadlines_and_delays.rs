//! Messages that are worth nothing later, and messages that are not to start yet.
//!
//! ```text
//! cargo run --example deadlines_and_delays
//! RUST_LOG=keylane=info cargo run --example deadlines_and_delays   # with a line for each attempt, on stderr
//! ```
//!
//! 1. Expiry: where a courier is, is worth knowing for 100 ms. While a slow push blocks a phone, the
//!    positions behind it grow old. They settle as expired, at their time, and are never pushed.
//! 2. A delay with `Delayed::Wait`: an account is frozen at 100 ms. What comes behind the freeze was
//!    meant to happen after it, and waits. Other accounts do not.
//! 3. A delay with `Delayed::Pass`: a reminder at 100 ms. It comes into its lane only then, and what
//!    was sent meanwhile has passed it.

use std::convert::Infallible;
use std::time::Duration;

use keylane::Dispatcher;
use keylane::discipline::Delayed;
use tokio::time::{Instant, sleep};

type Error = Box<dyn std::error::Error>;

/// For whom, what, and how long it takes.
type Job = (&'static str, &'static str, u64);
type Jobs = Dispatcher<&'static str, Job, (), Infallible>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    examples::log_to_stderr("warn");
    println!("1. expire_after 100 ms, and one push that takes 150");
    let clock = Clock(Instant::now());
    let pushes = Dispatcher::builder(|(phone, ..): &Job| *phone)
        .expire_after(Duration::from_millis(100))
        .spawn(move |job: Job| clock.handle(job))?;
    let mut told = Vec::new();
    for (after, push) in [
        (0, ("ada's phone", "the courier is at the depot", 150)),
        (10, ("ada's phone", "the courier is at the bridge", 10)),
        (0, ("bob's phone", "the courier is at the station", 10)),
        (80, ("ada's phone", "the courier is at the door", 10)),
    ] {
        sleep(Duration::from_millis(after)).await;
        let receipt = pushes.submit(push).await?;
        told.push(tokio::spawn(async move {
            if let Err(why) = receipt.await {
                clock.say(push.0, &format!("{}: {why}", push.1));
            }
        }));
    }
    for sender in told {
        sender.await?;
    }
    println!("   {}\n", pushes.drain().await);

    println!("2. send_when 100 ms; those behind it wait");
    let clock = Clock(Instant::now());
    let accounts = delaying(clock, Delayed::Wait)?;
    accounts.send(("ada", "pays 5", 10)).await?;
    let freeze = ("ada", "is frozen", 10);
    accounts.send_when(freeze, 100 * MS).await?;
    accounts.send(("ada", "pays 7", 10)).await?;
    accounts.send(("bob", "pays 9", 10)).await?;
    sleep(20 * MS).await;
    if let Some(view) = accounts.inspect(&"ada") {
        clock.say(
            "ada",
            &format!("has {} in her lane: {:?}", view.depth, view.state),
        );
    }
    println!("   {}\n", accounts.drain().await);

    println!("3. send_when 100 ms; those behind it pass");
    let clock = Clock(Instant::now());
    let carts = delaying(clock, Delayed::Pass)?;
    carts.send(("ada", "puts tea into her cart", 10)).await?;
    let reminder = ("ada", "is reminded of her cart", 10);
    carts.send_when(reminder, 100 * MS).await?;
    carts.send(("ada", "puts milk into her cart", 10)).await?;
    // The end waits for what is delayed; `close` would hand it back.
    println!("   {}", carts.drain().await);
    Ok(())
}

const MS: Duration = Duration::from_millis(1);

fn delaying(clock: Clock, delayed: Delayed) -> Result<Jobs, keylane::error::BuildError> {
    Dispatcher::builder(|(account, ..): &Job| *account)
        .delayed(delayed)
        .spawn(move |job: Job| clock.handle(job))
}

/// Says what happens, and when.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    async fn handle(self, (who, what, ms): Job) -> Result<(), Infallible> {
        self.say(who, what);
        sleep(Duration::from_millis(ms)).await;
        Ok(())
    }

    fn say(self, who: &str, what: &str) {
        println!("   {:>3} ms  {who}: {what}", self.0.elapsed().as_millis());
    }
}
