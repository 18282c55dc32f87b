//! Changes of the leader between two processes: it resigns, or it is killed.

use std::time::Duration;

use tokio::time::sleep;

use crate::Error;
use crate::curator::Curator;
use crate::process::Process;
use crate::samples::Samples;
use crate::server::Server;
use crate::side::Side;

/// How long all stand still before a change. Their watches are set by then.
const REST: Duration = Duration::from_millis(100);

/// How many changes are not measured: the virtual machines compile.
const WARM_UP: usize = 20;

/// How often the leader changes.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// It resigns.
    pub resigned: usize,
    /// It is killed.
    pub killed: usize,
}

/// The times without a leader, in the order of [`Side::BOTH`].
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// From the request to leave to the successor's start.
    pub resigned: [Samples; 2],
    /// From the signal to the successor's start.
    pub killed: [Samples; 2],
    /// The parts of a change of ours: until the term is released, until the successor is elected,
    /// until it leads.
    pub steps: [Samples; 3],
}

/// Measures both sides in turns, change by change. All processes run all the time.
pub async fn measure(curator: &Curator, server: &Server, times: Times) -> Result<Gaps, Error> {
    let mut pairs = Vec::new();
    for side in Side::BOTH {
        pairs.push(Pair::start(side, curator, server).await?);
    }
    let mut gaps = Gaps::default();
    for round in 0..WARM_UP + times.resigned {
        for (pair, samples) in pairs.iter_mut().zip(&mut gaps.resigned) {
            rest(server).await?;
            // Of the change before: by now all is said.
            if round > WARM_UP {
                pair.note_steps(&mut gaps.steps);
            }
            let gap = pair.change().await?;
            if round >= WARM_UP {
                samples.push(gap);
            }
        }
    }
    for _ in 0..times.killed {
        for (pair, samples) in pairs.iter_mut().zip(&mut gaps.killed) {
            rest(server).await?;
            samples.push(pair.kill(curator, server).await?);
        }
    }
    for pair in pairs {
        pair.close().await?;
    }
    Ok(gaps)
}

/// Waits until a leader and a successor of each side are there.
async fn rest(server: &Server) -> Result<(), Error> {
    let nodes = Side::BOTH.map(|side| side.nodes(2, 2));
    server.has(nodes.iter().sum()).await?;
    sleep(REST).await;
    Ok(())
}

/// Two processes with a candidate each.
struct Pair {
    side: Side,
    leader: Process,
    successor: Process,
    /// How many processes there were.
    started: u32,
    /// When the last change began and ended.
    last: [u64; 2],
}

impl Pair {
    async fn start(side: Side, curator: &Curator, server: &Server) -> Result<Self, Error> {
        let mut leader = start(side, curator, server, 0)?;
        leader.leads().await?;
        Ok(Self {
            side,
            leader,
            successor: start(side, curator, server, 1)?,
            started: 2,
            last: [0; 2],
        })
    }

    /// Lets the leader leave. Returns how long there was none, in microseconds.
    async fn change(&mut self) -> Result<u64, Error> {
        let left = self.leader.resign().await?;
        let leads = self.successor.leads().await?;
        std::mem::swap(&mut self.leader, &mut self.successor);
        self.last = [left, leads];
        Ok(leads.saturating_sub(left))
    }

    /// Notes the parts of the last change, if the processes tell them.
    fn note_steps(&mut self, steps: &mut [Samples; 3]) {
        let [left, leads] = self.last;
        let released = self.successor.released();
        if let (Some(released), Some(elected)) = (released, self.leader.elected()) {
            let times = [left, released, elected, leads];
            for (samples, part) in steps.iter_mut().zip(times.windows(2)) {
                samples.push(part[1].saturating_sub(part[0]));
            }
        }
    }

    /// Kills the leader, and starts another process when the successor leads. Returns how long
    /// there was no leader, in microseconds.
    async fn kill(&mut self, curator: &Curator, server: &Server) -> Result<u64, Error> {
        let killed = self.leader.kill().await?;
        let leads = self.successor.leads().await?;
        let next = start(self.side, curator, server, self.started)?;
        self.started += 1;
        self.leader = std::mem::replace(&mut self.successor, next);
        Ok(leads.saturating_sub(killed))
    }

    async fn close(self) -> Result<(), Error> {
        self.successor.close().await?;
        self.leader.close().await
    }
}

fn start(side: Side, curator: &Curator, server: &Server, number: u32) -> Result<Process, Error> {
    let id = format!("p{number}");
    Process::start(side.command(curator, server, &election(side, "changes"), &id, 1)?)
}

/// Returns the name of an election.
pub(crate) fn election(side: Side, part: &str) -> String {
    format!("{}-{part}", side.name().to_lowercase())
}
