//! The course of a run: what is done to the leaders.

use std::fmt::Display;
use std::time::{Duration, Instant};

use examples::say::{self, seconds};
use tokio::time::sleep;

use crate::Failure;
use crate::books::Books;
use crate::crew::{Crew, PATIENCE};
use crate::log::{Leading, Log};
use crate::plan::{Fault, Length, Plan};
use crate::site::Site;
use crate::words::{Clock, Order, PERIOD};

/// How long a process stays paused or cut off when another one bills already.
const MORE: Duration = Duration::from_millis(400);

/// How long what was on its way may take to arrive after a fault.
const ARRIVES: Duration = Duration::from_secs(10);

pub(crate) struct Course<'a> {
    pub(crate) crew: Crew,
    pub(crate) site: &'a Site,
    pub(crate) books: &'a Books,
    pub(crate) clock: Clock,
}

impl Course<'_> {
    /// Returns the last period to bill, and when all were billed.
    pub(crate) async fn run(
        &mut self,
        length: Length,
        seed: u64,
    ) -> Result<(u32, Duration), Failure> {
        let mut plan = Plan::new(seed);
        while length.goes_on(plan.faults(), self.clock.now()) {
            let (fault, after) = plan.next();
            let leader = self.settled(after).await?;
            self.fault(fault, leader).await?;
        }
        self.settled(PERIOD).await?;
        self.finished().await
    }

    /// Waits until a leader has led for so long, bills what is due, and is in the middle of a bill.
    async fn settled(&mut self, after: Duration) -> Result<Leading, Failure> {
        let clock = self.clock;
        let mut settled = None;
        let what = "a leader bills what is due";
        let found = |log: &Log| {
            let leader = log
                .leader()
                .filter(|leader| clock.now() > leader.since + after)?;
            let is_due = log.billed(leader.token)? + 1 >= clock.period();
            let (of, from) = *settled.get_or_insert((leader.token, log.lines().len()));
            if of != leader.token || !is_due {
                settled = None;
                return None;
            }
            log.begins(leader.token, from).then_some(leader)
        };
        self.crew.until(what, found).await
    }

    async fn fault(&mut self, fault: Fault, leader: Leading) -> Result<(), Failure> {
        let Leading { who, token, .. } = leader;
        let name = self.crew.name(who).to_owned();
        self.crew.strikes(fault, leader);
        match fault {
            Fault::Kill => self.crew.kill(who).await?,
            Fault::Pause => self.crew.signal(who, "STOP").await?,
            Fault::Cut => self.site.cut(who),
            Fault::Resign => self.crew.tell(who, Order::Resign).await?,
        }
        self.say(format_args!("{name} {}", fault.name()));
        let at = self.clock.now();
        let what = "another leader bills";
        let found = |log: &Log| log.succeeded(token).map(|line| (line.who, line.at));
        let (next, billed) = self.crew.until(what, found).await?;
        let (next, gap) = (self.crew.name(next).to_owned(), billed.saturating_sub(at));
        self.say(format_args!("    {next} bills, {} later", seconds(gap)));
        self.recover(fault, leader, &name).await
    }

    async fn recover(&mut self, fault: Fault, of: Leading, name: &str) -> Result<(), Failure> {
        let (who, token) = (of.who, of.token);
        match fault {
            Fault::Resign => return Ok(()),
            Fault::Kill => self.crew.begin(who).await?,
            Fault::Pause => {
                sleep(MORE).await;
                self.crew.signal(who, "CONT").await?;
            }
            Fault::Cut => {
                sleep(MORE).await;
                self.site.heal(who);
            }
        }
        self.crew.is_back(fault, who);
        match fault {
            Fault::Kill => self.say(format_args!("    {name} is started again")),
            _ => {
                let refused = self.arrived(token).await?;
                self.say(format_args!(
                    "    {name} is back, and {refused} late bills are refused"
                ));
            }
        }
        Ok(())
    }

    /// Waits until the process has left its term, and what it had begun has ended. Returns how much
    /// of that was refused.
    async fn arrived(&mut self, token: u64) -> Result<usize, Failure> {
        let since = Instant::now();
        loop {
            let (is_over, refused) = {
                let log = self.crew.log();
                (
                    log.has_left(token) && log.open(token) == 0,
                    log.refused(token),
                )
            };
            // A connection that has hung may be given up later.
            if is_over || since.elapsed() > ARRIVES {
                return Ok(refused);
            }
            self.crew.check()?;
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the billing, and waits until all accounts are billed.
    async fn finished(&mut self) -> Result<(u32, Duration), Failure> {
        let last = self.clock.period() + 2;
        for who in 0..crate::show::NAMES.len() {
            self.crew.tell(who, Order::Until(last)).await?;
        }
        let since = Instant::now();
        loop {
            let billed = self.books.billed().await?;
            if billed.iter().all(|billed| *billed >= last) {
                return Ok((last, self.clock.now()));
            }
            self.crew.check()?;
            if since.elapsed() > PATIENCE {
                let why = "some accounts are not billed up to second";
                return Err(format!("{why} {last}: {billed:?}").into());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn say(&self, text: impl Display) {
        say::line(format_args!("{:>8}  {text}", seconds(self.clock.now())));
    }
}
