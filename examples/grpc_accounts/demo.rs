//! The same calls with lanes and without.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Code, Status};
use tower::BoxError;

use crate::bank::{Bank, SLOW};
use crate::client::Client;
use crate::lanes::{LANE_CAPACITY, Mode};
use crate::server;

const ACCOUNTS: [&str; 4] = ["alice", "bob", "carol", "dave"];

/// Pairs of a deposit and a withdrawal for each account: as many calls at once as its lane holds.
const PAIRS: u64 = LANE_CAPACITY as u64 / 2;

/// What is on an account at first, put there and taken out.
const FIRST: u64 = 10_000;
const PUT: u64 = 100;
const TAKEN: u64 = 30;

/// Shows what a newcomer should see. The error says what was not as it should be.
pub(crate) async fn show() -> Result<(), BoxError> {
    println!(
        "For each of {} accounts, {} calls at once over three connections: {PAIRS} deposits of {PUT} and \
         {PAIRS} withdrawals of {TAKEN}.\nEach reads the balance, waits, and writes the new one. Beside \
         them, {} calls for an account that is a hundred times slower.\n",
        ACCOUNTS.len(),
        2 * PAIRS,
        LANE_CAPACITY + 8,
    );
    run(Mode::NoLanes).await?;
    let lost = run(Mode::Lanes).await?;
    if lost != 0 {
        return Err(format!("{lost} cents were lost although calls have lanes").into());
    }
    println!("With lanes no call overlaps another of its account, and no update is lost.");
    Ok(())
}

/// Runs all calls, prints what came of them, and returns how many cents are missing or too many.
async fn run(mode: Mode) -> Result<u64, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let bank = Bank::default();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server::serve(listener, bank.clone(), mode, async {
        // It is told by a message or by the end of its sender.
        let _ = stopped.await;
    }));

    let clients = connect(address).await?;
    let mut client = clients[0].clone();
    for account in ACCOUNTS {
        client.deposit(account, FIRST).await?;
    }
    let mut slow = call_slow(&clients);
    let began = Instant::now();
    call_all(&clients).await?;
    let took = began.elapsed().as_millis();
    let (done, refused) = outcomes(&mut slow)?;

    let lanes = match mode {
        Mode::Lanes => "with lanes",
        Mode::NoLanes => "without lanes",
    };
    println!("{lanes:13}  expected  balance  most calls at once");
    let expected = FIRST + PAIRS * (PUT - TAKEN);
    let mut lost = 0;
    for account in ACCOUNTS {
        let balance = client.balance(account).await?;
        let most = bank.most_calls(account);
        lost += balance.abs_diff(expected);
        println!("  {account:11}  {expected:8}  {balance:7}  {most:18}");
    }
    println!(
        "  all of them answered after {took} ms; of the slow account's, {done} were done by then and \
         {refused} refused (RESOURCE_EXHAUSTED)\n"
    );
    // Those that still wait hang up, and leave their lane.
    slow.shutdown().await;
    drop(stop);
    drop((client, clients));
    server.await??;
    Ok(lost)
}

async fn connect(address: SocketAddr) -> Result<Vec<Client>, BoxError> {
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Client::connect(address).await?);
    }
    Ok(clients)
}

/// More calls than a lane holds.
fn call_slow(clients: &[Client]) -> JoinSet<Result<u64, Status>> {
    let calls = clients.iter().cycle().take(LANE_CAPACITY + 8).cloned();
    calls
        .map(|mut client| async move { client.deposit(SLOW, PUT).await })
        .collect()
}

/// All calls for the other accounts, and an answer to each.
async fn call_all(clients: &[Client]) -> Result<(), BoxError> {
    let mut calls = JoinSet::new();
    for n in 0..PAIRS as usize {
        for account in ACCOUNTS {
            let (mut put, mut take) = (
                clients[n % clients.len()].clone(),
                clients[(n + 1) % clients.len()].clone(),
            );
            calls.spawn(async move { put.deposit(account, PUT).await });
            calls.spawn(async move { take.withdraw(account, TAKEN).await });
        }
    }
    while let Some(answer) = calls.join_next().await {
        answer??;
    }
    Ok(())
}

/// How many of those that have been answered were done, and how many refused.
fn outcomes(calls: &mut JoinSet<Result<u64, Status>>) -> Result<(usize, usize), BoxError> {
    let (mut done, mut refused) = (0, 0);
    while let Some(answer) = calls.try_join_next() {
        match answer? {
            Ok(_) => done += 1,
            Err(status) if status.code() == Code::ResourceExhausted => refused += 1,
            Err(status) => return Err(status.into()),
        }
    }
    Ok((done, refused))
}
