//! The workers of an election, and what is done to them.

use std::path::PathBuf;
use std::time::Duration;

use keylane_testkit::scenario::{Random, repeats, until};
use tempfile::TempDir;
use tokio::time::sleep;

use super::record::Event;
use super::scene::{Leading, Scene};
use super::verdict::CHANGES;
use super::worker::{Candidacy, RESIGN, hand_to};
use super::{Cut, Fault, Site, Verdict};
use crate::trial::start;
use crate::{Journal, Process, Reader, now};

/// How many candidates there are.
pub const WORKERS: usize = 3;

/// How often something is done to a leader, unless set otherwise.
const FEW: u64 = 12;

/// The rank of a candidate that has none of its own.
const RANK: u16 = u16::MAX;

/// Returns how long the terms of a test last: as long as those of a soak, which measures, if it is
/// one, and otherwise three times as long. On a machine that stood still for longer than a term its
/// leader acts before it looks at the clock, as a paused one does, and the judge has not paused it.
pub fn ttl(of_soak: Duration) -> Duration {
    match std::env::var_os(CHANGES) {
        Some(_) => of_soak,
        None => of_soak * 3,
    }
}

/// Candidates in processes, on a store that a test disturbs.
///
/// Before each fault all candidates know the leader, and it has written.
#[derive(Debug)]
pub struct Trial<'a, S> {
    site: &'a S,
    test: &'static str,
    ttl: Duration,
    workers: Vec<Process>,
    /// The best rank so far.
    best: u16,
    journal: Journal,
    reader: Reader<3>,
    scene: Scene,
    path: PathBuf,
    _folder: TempDir,
}

impl<'a, S: Site> Trial<'a, S> {
    /// Starts workers, each of which runs this test. Their terms last so long.
    ///
    /// # Panics
    ///
    /// Panics if a worker cannot be started.
    pub fn start(site: &'a S, test: &'static str, ttl: Duration) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let journal = Journal::open(&path);
        let mut trial = Self {
            site,
            test,
            ttl,
            workers: Vec::new(),
            best: RANK,
            journal,
            reader: Reader::open(&path),
            scene: Scene::default(),
            path,
            _folder: folder,
        };
        trial.workers = (0..WORKERS).map(|at| trial.worker(at, RANK)).collect();
        trial
    }

    /// Does these things to leaders by chance, 12 in all, or as often as the environment variable
    /// `KEYLANE_CHANGES` says. Then it ends the election, and judges it.
    ///
    /// With the variable it is a soak: it also judges how long the changes take.
    ///
    /// # Panics
    ///
    /// Panics if there is no leader within two minutes, or a worker fails.
    pub async fn changes(mut self, of: &[Fault]) -> Verdict {
        let mut random = Random::new(38);
        let count = repeats(CHANGES, FEW);
        for fault in Fault::draw(of, count, &mut random) {
            let (at, leader) = self.settled(now()).await;
            // At any moment of its work.
            sleep(Duration::from_millis(random.below(40))).await;
            self.disturb(fault, at, leader, &mut random).await;
        }
        self.settled(now()).await;
        for worker in std::mem::take(&mut self.workers) {
            worker.stop().await;
        }
        let lines = Reader::open(&self.path).into_written();
        Verdict::judge(&lines, &self.site.written().await)
    }

    async fn disturb(&mut self, fault: Fault, at: usize, leader: Leading, random: &mut Random) {
        let other = (at + 1 + random.below(WORKERS as u64 - 1) as usize) % WORKERS;
        match fault {
            Fault::Kill => {
                self.fault(fault, leader, 0);
                self.kill(at);
                self.succeeded(leader).await;
                self.workers[at] = self.worker(at, RANK);
            }
            Fault::KillTwo => {
                self.fault(fault, leader, 0);
                self.kill(other);
                self.kill(at);
                self.succeeded(leader).await;
                for at in [at, other] {
                    self.workers[at] = self.worker(at, RANK);
                }
            }
            Fault::Pause => {
                self.fault(fault, leader, 0);
                let process = u64::from(leader.process);
                Event::Paused.write(&self.journal, [process, 0, 0]);
                self.workers[at].pause().await;
                self.succeeded(leader).await;
                later(random).await;
                Event::Resumed.write(&self.journal, [process, 0, 0]);
                self.workers[at].resume();
            }
            Fault::Resign => self.resign(fault, at, leader, 0).await,
            Fault::Clock => self.set_clock(at, leader, random).await,
            Fault::HandTo => {
                let to = self.workers[other].id();
                self.fault(fault, leader, to);
                self.workers[at].tell(&hand_to(to));
                self.succeeded(leader).await;
            }
            Fault::Rank => self.better_rank(at, other, leader).await,
            Fault::Cut => self.cut(fault, Cut::Both, at, leader, random).await,
            Fault::CutAnswers => self.cut(fault, Cut::Answers, at, leader, random).await,
            Fault::Restart => {
                self.fault(fault, leader, 0);
                self.site.restart().await;
                self.settled(now()).await;
            }
        }
    }

    /// A candidate is replaced by one of a better rank, which waits for a while.
    async fn better_rank(&mut self, at: usize, other: usize, leader: Leading) {
        self.best -= 1;
        let worker = self.worker(other, self.best);
        let before = std::mem::replace(&mut self.workers[other], worker);
        before.stop().await;
        let joined = self.workers[other].id();
        let token = leader.token;
        until(|| {
            let scene = self.look();
            // By itself another one may lead by now: on a machine that stood still.
            scene.has_seen(joined, token) || scene.token() > token
        })
        .await;
        Event::Stays.write(&self.journal, [token, 0, 0]);
        sleep(self.ttl / 2).await;
        self.resign(Fault::Rank, at, leader, joined).await;
    }

    /// The clock of the leader is set an hour ahead or back, for longer than a term.
    async fn set_clock(&mut self, at: usize, leader: Leading, random: &mut Random) {
        Event::Stays.write(&self.journal, [leader.token, 1, 0]);
        let hour = if random.one_in(2) { 3_600 } else { -3_600 };
        self.site.set_clock(at, hour);
        sleep(self.ttl * 5 / 4).await;
        self.resign(Fault::Clock, at, leader, 0).await;
        self.site.set_clock(at, 0);
    }

    async fn resign(&mut self, fault: Fault, at: usize, leader: Leading, successor: u32) {
        self.fault(fault, leader, successor);
        self.workers[at].tell(RESIGN);
        self.succeeded(leader).await;
    }

    async fn cut(
        &mut self,
        fault: Fault,
        cut: Cut,
        at: usize,
        leader: Leading,
        random: &mut Random,
    ) {
        self.fault(fault, leader, 0);
        self.site.cut(at, cut);
        self.succeeded(leader).await;
        later(random).await;
        self.site.heal(at);
    }

    fn fault(&self, fault: Fault, leader: Leading, successor: u32) {
        let numbers = [fault.code(), leader.token, u64::from(successor)];
        Event::Fault.write(&self.journal, numbers);
    }

    fn kill(&mut self, at: usize) {
        self.workers[at].kill();
        let process = u64::from(self.workers[at].id());
        Event::Killed.write(&self.journal, [process, 0, 0]);
    }

    fn worker(&self, at: usize, rank: u16) -> Process {
        let task = Candidacy::task(rank, self.ttl, &self.site.address(at));
        start(self.test, &self.path, &task, self.site.variables(at))
    }

    /// Waits until all candidates know a leader that has written since then. Returns its place.
    async fn settled(&mut self, since: Duration) -> (usize, Leading) {
        let processes: Vec<u32> = self.workers.iter().map(Process::id).collect();
        let mut settled = None;
        until(|| {
            settled = self.look().settled(&processes, since);
            settled.is_some()
        })
        .await;
        let leader: Leading = settled.expect("it was waited for");
        let at = processes.iter().position(|id| *id == leader.process);
        (at.expect("it is one of them"), leader)
    }

    /// Waits until another leader than this one is inaugurated.
    async fn succeeded(&mut self, leader: Leading) {
        until(|| self.look().token() > leader.token).await;
    }

    fn look(&mut self) -> &Scene {
        for line in self.reader.read() {
            self.scene.hear(line);
        }
        &self.scene
    }
}

/// Waits until the successor has probably written.
async fn later(random: &mut Random) {
    sleep(Duration::from_millis(50 + random.below(150))).await;
}
