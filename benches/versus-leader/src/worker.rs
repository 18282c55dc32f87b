//! Candidates of `keylane-leader` in a process of their own. The program in Java does the same.

use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylane_leader::{Candidate, Career, Elections, End, Event, Events, Office, Stop, Term};
use keylane_zookeeper::{ZooKeeper, ZooKeeperLeases};
use tokio::sync::mpsc;

use crate::Error;
use crate::server::TICK;

/// The hidden subcommand with which this program runs candidates.
pub const SUBCOMMAND: &str = "candidates";

/// The pause before a leader that has left stands again. Curator's candidates stand again at once.
const AGAIN: Duration = Duration::from_millis(1);

/// What the candidates of a process are told at its start.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// The address of the server.
    hosts: String,
    /// The root of the nodes.
    path: String,
    /// The name of the process.
    id: String,
    /// How many candidates there are.
    candidates: usize,
    /// The session time-out, in milliseconds.
    session_ms: u64,
}

/// Runs candidates until standard input ends. Writes `lead MICROS CANDIDATE` when one of them
/// leads, and `left MICROS` when it was told to leave, by a line `resign`. Writes `released` and
/// `elected` between, which the program in Java does not.
pub async fn run(settings: &Settings) -> Result<(), Error> {
    let zookeeper = ZooKeeper::at(&*settings.hosts)?
        .session_timeout(Duration::from_millis(settings.session_ms))?
        .server_tick(TICK);
    let store = ZooKeeperLeases::open(&zookeeper, &*settings.path)?;
    let elections = Elections::open(Arc::new(store))?;
    let mut offices = Vec::with_capacity(settings.candidates);
    for number in 0..settings.candidates {
        let id = format!("{}-{number}", settings.id);
        let office = Candidate::builder(&elections, "versus")
            .id(&*id)
            .ttl(zookeeper.longest_ttl())
            .retry_after(AGAIN, AGAIN)
            .run(Work { id })?;
        tokio::spawn(tell_steps(office.events()));
        offices.push(office);
    }
    let mut orders = orders();
    while orders.recv().await.is_some() {
        let left = now();
        if offices.iter().any(|office| office.resign().is_ok()) {
            say(&format!("left {left}"));
        }
    }
    for office in offices {
        Office::close(office).await;
    }
    elections.close().await;
    Ok(())
}

/// Says when a leader has left and when one is elected.
async fn tell_steps(mut events: Events) {
    while let Some(event) = events.next().await {
        match event {
            Event::Standing => say(&format!("released {}", now())),
            Event::Elected(_) => say(&format!("elected {}", now())),
            _ => {}
        }
    }
}

/// Reads the orders to resign, on a thread of its own, until standard input ends.
fn orders() -> mpsc::UnboundedReceiver<()> {
    let (sender, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lines();
        for _ in lines.take_while(|line| line.as_ref().is_ok_and(|line| line == "resign")) {
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    orders
}

struct Work {
    id: String,
}

impl Career for Work {
    type Error = Infallible;

    async fn inaugurate(&mut self, _term: &Term) -> Result<(), Infallible> {
        Ok(())
    }

    async fn execute(&mut self, _term: &Term, stop: Stop) -> Result<(), Infallible> {
        say(&format!("lead {} {}", now(), self.id));
        stop.requested().await;
        Ok(())
    }

    async fn hand_over(&mut self, _term: &Term, _why: End) {}
}

/// Returns the microseconds since 1970.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Without a reader the run is over.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
