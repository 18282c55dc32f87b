//! The course of the demo: workers, one more, a kill, and the verdict.

use std::time::Duration;

use tempfile::TempDir;
use testkit_servers::Kafka;
use tokio::time::{Instant, sleep};

use crate::arguments::Show;
use crate::block::Block;
use crate::broker::{self, GROUP, PARTITIONS, TOPIC};
use crate::crew::Crew;
use crate::journal::{self, Entry, Journal};
use crate::judge::{Committed, Verdict};
use crate::observer::{Observer, Seen};
use crate::producer::Producer;
use crate::say::{grouped, seconds};
use crate::stop::stop_signal;
use crate::worker::{Job, SESSION};
use crate::{Failure, say};

const WORKERS: usize = 3;

/// After so long without any progress, something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(50);
const SHOW: Duration = Duration::from_secs(1);

/// `false` if the proof does not hold.
pub(crate) async fn show(show: &Show) -> Result<bool, Failure> {
    let stops = stop_signal();
    tokio::pin!(stops);
    let kafka = tokio::select! {
        kafka = broker::start() => kafka?,
        () = &mut stops => return Err("interrupted".into()),
    };
    tokio::select! {
        shown = with(show, &kafka) => shown,
        () = &mut stops => Err("interrupted; the workers and the broker were ended".into()),
    }
}

async fn with(show: &Show, kafka: &Kafka) -> Result<bool, Failure> {
    let brokers = kafka.bootstrap();
    let folder = TempDir::new()?;
    let path = folder.path().join("journal");
    broker::create_topic(&brokers).await?;
    let observer = Observer::new(&brokers, TOPIC, GROUP, &[]).await?;
    let orders = show.plan.orders();
    say::line(format_args!(
        "{} orders of {} customers go to {PARTITIONS} partitions, and {WORKERS} worker processes handle them.\n\
         A worker that says nothing for {} loses its partitions to the others.\n",
        grouped(show.plan.orders),
        grouped(show.plan.customers),
        seconds(SESSION),
    ));
    let mut crew = Crew::new(Job {
        number: 1,
        brokers: brokers.clone(),
        topic: TOPIC.to_owned(),
        group: GROUP.to_owned(),
        work: show.work,
        journal: path.clone(),
    });
    for _ in 0..WORKERS {
        let (number, console) = crew.start().await?;
        say::line(format_args!(
            "worker {number}: http://{console}   its console"
        ));
    }
    say::line("");
    let now = Instant::now();
    let mut course = Course {
        producer: Producer::start(&brokers, TOPIC, orders.clone())?,
        crew,
        observer,
        journal: Journal::open(&path)?,
        orders: u64::from(show.plan.orders),
        began: now,
        shown: now,
    };
    let committed = course.run().await?;
    let Course { crew, began, .. } = course;
    let elapsed = began.elapsed();
    crew.stop().await?;
    let verdict = Verdict::of(&orders, &journal::read(&path)?, &committed);
    say::line(format_args!(
        "\ntook            {}\n{verdict}",
        seconds(elapsed)
    ));
    Ok(verdict.is_good())
}

/// What is done to the workers.
struct Course {
    producer: Producer,
    crew: Crew,
    observer: Observer,
    journal: Journal,
    orders: u64,
    began: Instant,
    /// When the block was shown last.
    shown: Instant,
}

impl Course {
    /// Returns what was committed when the worker was killed.
    async fn run(&mut self) -> Result<Committed, Failure> {
        self.say(&format!("{WORKERS} workers begin"));
        self.handled(self.orders / 4).await?;
        let (new, console) = self.crew.start().await?;
        self.say(&format!("worker {new} joins: http://{console}"));
        self.have_partitions(WORKERS + 1).await?;
        self.say(&format!("worker {new} has partitions"));
        self.handled(self.orders / 2).await?;
        let killed = self.crew.kill_busiest().await?;
        self.journal.write(&Entry::Dead(killed))?;
        // The group gives its partitions to others when its session is over, and not before.
        let committed = self.observer.committed().await?;
        self.say(&format!("worker {killed} is killed (SIGKILL)"));
        self.all_committed().await?;
        self.say("all orders are handled, and committed");
        Ok(committed)
    }

    async fn handled(&mut self, orders: u64) -> Result<(), Failure> {
        let (mut most, mut since) = (0, Instant::now());
        while self.crew.handled() < orders {
            self.look().await?;
            if self.crew.handled() > most {
                (most, since) = (self.crew.handled(), Instant::now());
            }
            patient(since, "no order is handled")?;
        }
        Ok(())
    }

    async fn have_partitions(&mut self, members: usize) -> Result<(), Failure> {
        let since = Instant::now();
        let has = |(_, status): &(u32, crate::member::Status)| !status.partitions.is_empty();
        while self.crew.statuses().into_iter().filter(has).count() < members {
            self.look().await?;
            patient(since, "a worker gets no partitions")?;
        }
        Ok(())
    }

    async fn all_committed(&mut self) -> Result<(), Failure> {
        let (mut least, mut since) = (u64::MAX, Instant::now());
        loop {
            self.look().await?;
            let seen = self.observer.see().await?;
            let left = seen.iter().map(|one| one.lag).sum();
            if left == 0 && self.producer.produced() == self.orders {
                return self.show(&seen);
            }
            if left < least || self.producer.produced() < self.orders {
                (least, since) = (left, Instant::now());
            }
            patient(since, "nothing is committed any more")?;
        }
    }

    async fn look(&mut self) -> Result<(), Failure> {
        sleep(LOOK).await;
        self.crew.check()?;
        self.producer.check()?;
        if self.shown.elapsed() >= SHOW {
            self.shown = Instant::now();
            let seen = self.observer.see().await?;
            self.show(&seen)?;
        }
        Ok(())
    }

    fn show(&self, partitions: &[Seen]) -> Result<(), Failure> {
        let members = self.crew.statuses().into_iter();
        let members = members.map(|(number, status)| (format!("worker {number}"), status));
        let block = Block {
            elapsed: self.began.elapsed(),
            produced: Some((self.producer.produced(), self.orders)),
            handled: self.crew.handled(),
            members: &members.collect::<Vec<_>>(),
            partitions,
        };
        say::block(block);
        Ok(())
    }

    fn say(&self, text: &str) {
        say::line(format_args!(
            "{:>8}  {text}\n",
            seconds(self.began.elapsed())
        ));
    }
}

fn patient(since: Instant, what: &str) -> Result<(), Failure> {
    match since.elapsed() > PATIENCE {
        true => Err(format!("{what} for {}", seconds(PATIENCE)).into()),
        false => Ok(()),
    }
}
