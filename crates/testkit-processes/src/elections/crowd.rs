//! Many leaders in one process, and what they cost at rest.

use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::time::Duration;

use keylane_leader::{Candidate, Career, Elections, End, Office, Stop, Term};
use tokio::time::{Instant, sleep};

/// How long the cost is measured.
const MEASURED: Duration = Duration::from_secs(20);

/// How often it is looked whether all lead.
const LOOK: Duration = Duration::from_millis(20);

/// Clock ticks in a second, in what the kernel reports of a process.
const TICKS: f64 = 100.0;

/// Leads, and does nothing.
struct Idle;

impl Career for Idle {
    type Error = Infallible;

    async fn inaugurate(&mut self, _term: &Term) -> Result<(), Infallible> {
        Ok(())
    }

    async fn execute(&mut self, _term: &Term, stop: Stop) -> Result<(), Infallible> {
        stop.requested().await;
        Ok(())
    }

    async fn hand_over(&mut self, _term: &Term, _why: End) {}
}

/// What it costs a process and its server that many of its candidates lead.
///
/// Processor times are in seconds for each second. Those of the server include its processes of
/// connections.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    leaders: usize,
    /// From the first candidate until all lead.
    elected: Duration,
    process: f64,
    server: f64,
    /// Terms that were lost meanwhile.
    lost: usize,
}

impl Crowd {
    /// Lets `leaders` candidates of this process lead, each in an election of its own, and measures
    /// for 20 seconds what that costs. `server` is the process of the server.
    ///
    /// # Panics
    ///
    /// If a candidate cannot be started.
    pub async fn measure(
        elections: &Elections,
        leaders: usize,
        ttl: Duration,
        server: u32,
    ) -> Self {
        let began = Instant::now();
        let offices: Vec<Office> = (0..leaders)
            .map(|n| {
                let candidate = Candidate::builder(elections, format!("crowd-{n}")).ttl(ttl);
                candidate.run(Idle).expect("a candidate")
            })
            .collect();
        while !offices.iter().all(Office::leads) {
            sleep(LOOK).await;
        }
        let elected = began.elapsed();
        let times = || (processor_time(std::process::id()), processor_time(server));
        let (from, before) = (Instant::now(), times());
        sleep(MEASURED).await;
        let (seconds, after) = (from.elapsed().as_secs_f64(), times());
        let lost = offices.iter().filter(|office| !office.leads()).count();
        for office in offices {
            office.close().await;
        }
        Self {
            leaders,
            elected,
            process: (after.0 - before.0) / seconds,
            server: (after.1 - before.1) / seconds,
            lost,
        }
    }

    /// Fails if a leader has lost its term.
    ///
    /// # Panics
    ///
    /// Then.
    pub fn assert_all_lead(&self) {
        assert_eq!(self.lost, 0, "{self}");
    }
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} leaders in one process, elected within {:.2?}: at rest {:.1} ms of processor time \
             a second in the process, {:.1} ms in the server",
            self.leaders,
            self.elected,
            self.process * 1_000.0,
            self.server * 1_000.0
        )
    }
}

/// Returns the processor time of a process and of its children, in seconds.
fn processor_time(pid: u32) -> f64 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    ticks(pid) / TICKS + children.map(processor_time).sum::<f64>()
}

/// The user's part, the kernel's, and those of children that have ended.
fn ticks(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the process is in brackets, and may contain any character.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(11).take(4);
    times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum()
}
