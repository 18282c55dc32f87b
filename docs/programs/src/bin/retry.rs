//! Errors that a retry mends, and one that it does not.

use std::time::Duration;

use keylane::error::Failure;
use keylane::{Context, Dispatcher, OnExhausted, Retry};

#[derive(Debug)]
enum BillError {
    NoSuchAccount,
    BankIsAway,
}

async fn bill(ctx: Context<&'static str>, account: &'static str) -> Result<(), BillError> {
    println!("{account}, attempt {}", ctx.attempt());
    match account {
        "nobody" => Err(BillError::NoSuchAccount),
        _ if ctx.attempt() == 1 => Err(BillError::BankIsAway),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    // ANCHOR: retry
    let orders = Dispatcher::builder(|account: &&'static str| *account)
        .retry(
            Retry::exponential(Duration::from_millis(50))
                .max_attempts(8)
                .cap(Duration::from_secs(30))
                .retry_if(|why| !matches!(why, Failure::Error(BillError::NoSuchAccount))),
        )
        .on_exhausted(OnExhausted::Discard)
        .spawn(bill)?;
    // ANCHOR_END: retry
    for account in ["ada", "nobody"] {
        orders.send(account).await?;
    }
    println!("{}", orders.drain().await);
    Ok(())
}
