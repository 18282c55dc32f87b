//! An operator at work on a ledger: every action on one account, and no other account notices.
//!
//! ```text
//! cargo run --example lane_control
//! RUST_LOG=keylane=info cargo run --example lane_control   # with a line for each attempt, on stderr
//! ```
//!
//! The bank of `ada` is down, so her lane backs off. `bob` has an entry that can never be booked, so
//! his lane halts. `cid` is paused for an audit. `dan` books all the while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane::error::Failure;
use keylane::{Dispatcher, OnExhausted, Retry};
use tokio::time::{Instant, sleep};

#[derive(Debug, Clone)]
struct Entry {
    account: &'static str,
    cents: i64,
}

#[derive(Debug)]
enum BookError {
    BankIsDown,
    NotAnAmount,
}

const fn entry(account: &'static str, cents: i64) -> Entry {
    Entry { account, cents }
}

type Ledger = Dispatcher<&'static str, Entry, (), BookError>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    examples::log_to_stderr("off");
    let started = Instant::now();
    let bank_is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&bank_is_down);
    let ledger = Dispatcher::builder(|entry: &Entry| entry.account)
        .retry(
            Retry::fixed(Duration::from_secs(3600))
                .retry_if(|why| matches!(why, Failure::Error(BookError::BankIsDown))),
        )
        .on_exhausted(OnExhausted::Halt)
        .spawn(move |Entry { account, cents }: Entry| {
            let down = account == "ada" && down.load(Ordering::Relaxed);
            async move {
                match cents {
                    _ if down => return Err(BookError::BankIsDown),
                    0 => return Err(BookError::NotAnAmount),
                    _ => {}
                }
                let ms = started.elapsed().as_millis();
                println!("   {ms:>3} ms  {account}: {cents} cents are booked");
                Ok(())
            }
        })?;

    let (ada, bob, cid) = (
        ledger.lane(&"ada"),
        ledger.lane(&"bob"),
        ledger.lane(&"cid"),
    );
    println!("pause cid, before anything of hers is here");
    cid.pause();
    for (account, entries) in [
        ("ada", vec![100, 101]),
        ("bob", vec![0, 0, 202]),
        ("cid", vec![300, 301]),
        ("dan", vec![400]),
    ] {
        for cents in entries {
            ledger.send(entry(account, cents)).await?;
        }
    }
    look(&ledger).await;

    println!("retry_now on ada: her bank is back, and her next attempt is an hour away");
    bank_is_down.store(false, Ordering::Relaxed);
    ada.retry_now()?;
    look(&ledger).await;

    println!("replace on bob: the entry should have said 200");
    let wrong = bob.replace(entry("bob", 200))?;
    println!("   instead of {wrong:?}");
    look(&ledger).await;

    println!("skip on bob: what his second one should have said is not known");
    bob.skip()?;
    look(&ledger).await;

    println!("purge on cid: the audit says that all of it is fraud");
    println!("   {} entries are gone", cid.purge());
    look(&ledger).await;

    println!("resume cid, and she books again");
    cid.resume()?;
    ledger.send(entry("cid", 302)).await?;
    look(&ledger).await;
    if let Err(why) = cid.resume() {
        println!("resume her once more: {why}");
    }

    println!("{}", ledger.drain().await);
    Ok(())
}

/// Why each account waits that does.
async fn look(ledger: &Ledger) {
    // What was just sent or decided gets the time to happen.
    sleep(Duration::from_millis(20)).await;
    for account in ["ada", "bob", "cid", "dan"] {
        if let Some(view) = ledger.inspect(&account) {
            println!("   {account}: {} wait, {:?}", view.depth, view.state);
        }
    }
}
