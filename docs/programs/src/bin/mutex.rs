//! A critical section for each account, in place of a map of mutexes.

use keylane_semaphore::KeyedSemaphore;

async fn transfer(accounts: &KeyedSemaphore<u64>, account: u64, cents: i64) -> Result<(), String> {
    let _permit = accounts
        .acquire(account)
        .await
        .map_err(|error| error.to_string())?;
    println!("account {account}: {cents} cents"); // the only one for this account
    Ok(())
} // dropped here: the next one that waits for this account goes on

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let accounts = KeyedSemaphore::builder()
        .concurrency(64) // permits at once
        .lane_capacity(100) // waiters and permits of one account
        .build()?;
    tokio::try_join!(
        transfer(&accounts, 7, 250),
        transfer(&accounts, 7, -50),
        transfer(&accounts, 8, 99),
    )?;
    Ok(())
}
