//! A dispatcher whose keys are handled by one process at a time. Start it in two terminals.

use std::env::var;
use std::process::id;
use std::sync::Arc;
use std::time::Duration;

use keylane::{Context, Dispatcher};
use keylane_leases::Leases;
use keylane_redis::{Redis, RedisLeases};

async fn work(context: Context<u64>, account: u64) -> Result<(), std::io::Error> {
    // The store of the effects refuses a token that is lower than one it has seen.
    let token = context.lease_token();
    println!(
        "account {account}: process {} works under token {token:?}",
        id()
    );
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let redis = Redis::at(&var("REDIS").unwrap_or("redis://localhost".to_owned()))?;
    let leases = Leases::open(Arc::new(RedisLeases::open(&redis, "accounts")?))?;
    let lanes = leases.lanes(Duration::from_secs(10), |account: &u64| {
        account.to_be_bytes()
    })?;
    let accounts = Dispatcher::builder(|account: &u64| *account)
        .leased_by(lanes)
        .spawn(work)?;

    for account in [1, 2, 3, 1, 2, 3, 1, 2, 3] {
        accounts.send(account).await?;
    }
    println!("{}", accounts.drain().await); // the dispatcher before its leases
    leases.close().await;
    Ok(())
}
