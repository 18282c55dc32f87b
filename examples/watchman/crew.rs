//! The processes: this program once more, each a candidate.

use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use examples::{Again, Said as Output};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::Failure;
use crate::log::{Leading, Line, Log, What};
use crate::plan::Fault;
use crate::words::{Job, Order, Said, Word};

/// How long anything may take before something is wrong.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked at what was said.
const LOOK: Duration = Duration::from_millis(5);

/// All processes. Each is killed when this is dropped, which waits for its end.
pub(crate) struct Crew {
    jobs: Vec<Job>,
    members: Vec<Option<Member>>,
    log: Arc<Mutex<Log>>,
}

struct Member {
    process: Again,
    listener: JoinHandle<()>,
}

impl Crew {
    /// Starts a process for each job.
    pub(crate) async fn start(jobs: Vec<Job>) -> Result<Self, Failure> {
        let members = jobs.iter().map(|_| None).collect();
        let mut crew = Self {
            jobs,
            members,
            log: Arc::default(),
        };
        for who in 0..crew.jobs.len() {
            crew.begin(who).await?;
        }
        Ok(crew)
    }

    /// Starts one, and waits until it stands for election.
    pub(crate) async fn begin(&mut self, who: usize) -> Result<(), Failure> {
        let (mut process, mut output) = Again::start("worker")?;
        process
            .tell(&serde_json::to_string(&self.jobs[who])?)
            .await?;
        let first = output.next_line().await?;
        let first = first.as_deref().and_then(said);
        if !first.is_some_and(|said| said.word == Word::Ready) {
            let status = process.wait(PATIENCE).await?;
            let name = self.name(who);
            return Err(format!("{name} has not begun ({status}), and says why above").into());
        }
        let listener = tokio::spawn(listen(who, output, Arc::clone(&self.log)));
        self.members[who] = Some(Member { process, listener });
        Ok(())
    }

    pub(crate) fn name(&self, who: usize) -> &str {
        &self.jobs[who].name
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a fault begins.
    pub(crate) fn strikes(&self, fault: Fault, leader: Leading) {
        self.record(leader.who, What::Fault(fault, leader.token));
    }

    /// Records that it is over.
    pub(crate) fn is_back(&self, fault: Fault, who: usize) {
        self.record(who, What::Back(fault));
    }

    fn record(&self, who: usize, what: What) {
        let at = self.jobs[who].clock.now();
        self.log().push(Line { who, at, what });
    }

    /// Kills it as it is, with SIGKILL.
    pub(crate) async fn kill(&mut self, who: usize) -> Result<(), Failure> {
        let member = self.members[who].take();
        let mut member = member.ok_or("it has ended")?;
        member.process.kill().await?;
        Ok(member.listener.await?)
    }

    /// Sends `STOP` or `CONT`.
    pub(crate) async fn signal(&mut self, who: usize, signal: &str) -> Result<(), Failure> {
        Ok(self.member(who)?.process.signal(signal).await?)
    }

    pub(crate) async fn tell(&mut self, who: usize, order: Order) -> Result<(), Failure> {
        let order = serde_json::to_string(&order)?;
        Ok(self.member(who)?.process.tell(&order).await?)
    }

    fn member(&mut self, who: usize) -> Result<&mut Member, Failure> {
        let member = self.members[who].as_mut();
        member.ok_or_else(|| "it has ended".into())
    }

    /// Waits until the log has what is looked for.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&Log) -> Option<T>,
    ) -> Result<T, Failure> {
        let since = Instant::now();
        loop {
            if let Some(found) = found(&self.log()) {
                return Ok(found);
            }
            self.check()?;
            if since.elapsed() > PATIENCE {
                return Err(format!("not within {PATIENCE:?}: {what}").into());
            }
            sleep(LOOK).await;
        }
    }

    /// An error if one has ended that should not.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        for (who, member) in self.members.iter_mut().enumerate() {
            let ended = member.as_mut().map(|member| member.process.ended());
            if let Some(Some(status)) = ended.transpose()? {
                return Err(format!("{} has ended with {status}", self.jobs[who].name).into());
            }
        }
        Ok(())
    }

    /// Has all finish what they have begun: the followers first, so that none of them takes over.
    /// Returns what was said.
    pub(crate) async fn stop(mut self) -> Result<Log, Failure> {
        let leader = self.log().leader().map(|leader| leader.who);
        let all = 0..self.jobs.len();
        let followers = all.filter(|who| Some(*who) != leader);
        for who in followers.chain(leader).collect::<Vec<_>>() {
            let Some(mut member) = self.members[who].take() else {
                continue;
            };
            member.process.close_input();
            let status = member.process.wait(PATIENCE).await;
            let name = self.name(who);
            let status = status.map_err(|error| format!("{name}: {error}"))?;
            if !status.success() {
                return Err(format!("{name} has ended with {status}").into());
            }
            member.listener.await?;
        }
        let log = take(&mut *self.log());
        Ok(log)
    }
}

async fn listen(who: usize, mut output: Output, log: Arc<Mutex<Log>>) {
    while let Ok(Some(line)) = output.next_line().await {
        // The last line of a process that was killed may be a part of one.
        if let Some(Said { at, word }) = said(&line) {
            let what = What::Said(word);
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.push(Line { who, at, what });
        }
    }
}

fn said(line: &str) -> Option<Said> {
    serde_json::from_str(line).ok()
}
