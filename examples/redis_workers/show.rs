//! The course of the demo: workers, a kill, a pause, and the verdict.

use std::time::Duration;

use keylane_redis::{ListQueue, Redis};
use tokio::time::{Instant, sleep};

use crate::arguments::Show;
use crate::block::{Block, Seen};
use crate::crew::Crew;
use crate::judge::Verdict;
use crate::order::{Order, Way};
use crate::producer::Producer;
use crate::say::{grouped, seconds};
use crate::sink::Sink;
use crate::stop::stop_signal;
use crate::worker::{Job, LEASE, LIST, PARTITIONS, STREAM, queue};
use crate::{Failure, say};

const WORKERS: usize = 4;

/// After so long without any progress, something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(50);
const SHOW: Duration = Duration::from_secs(1);

/// `false` if the proof does not hold.
pub(crate) async fn show(show: &Show) -> Result<bool, Failure> {
    let stops = stop_signal();
    tokio::pin!(stops);
    let server = tokio::select! {
        server = testkit_servers::Redis::start(show.server) => server?,
        () = &mut stops => return Err("interrupted".into()),
    };
    tokio::select! {
        shown = with(show, &server) => shown,
        () = &mut stops => Err("interrupted; the workers and the server were ended".into()),
    }
}

async fn with(show: &Show, server: &testkit_servers::Redis) -> Result<bool, Failure> {
    let url = server.url();
    let orders = show.plan.orders();
    let sink = Sink::open(&url).await?;
    say::line(format_args!(
        "{}: {} orders of {} customers go to the list {LIST} and to the {PARTITIONS} partitions of the \
         stream {STREAM},\nand {WORKERS} worker processes handle them. A worker that says nothing for {} \
         loses what it has to the others.\n",
        show.server,
        grouped(show.plan.orders),
        grouped(show.plan.customers),
        seconds(LEASE),
    ));
    let mut crew = Crew::new(Job {
        number: 1,
        url: url.clone(),
        work: show.work,
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
        queue: queue(&Redis::at(&url)?).build()?,
        producer: Producer::start(&url, orders.clone())?,
        crew,
        sink,
        orders,
        began: now,
        shown: now,
    };
    course.run().await?;
    let Course { crew, orders, .. } = course;
    let elapsed = now.elapsed();
    let faulty = crew.faulty.clone();
    crew.stop().await?;
    let (journal, refused) = course.sink.read().await?;
    let orders: Vec<Order> = orders.into_iter().map(|(_, order)| order).collect();
    let verdict = Verdict::of(&orders, &journal, refused, &faulty);
    say::line(format_args!(
        "\ntook            {}\n{verdict}",
        seconds(elapsed)
    ));
    Ok(verdict.is_good())
}

/// What is done to the workers.
struct Course {
    queue: ListQueue,
    producer: Producer,
    crew: Crew,
    sink: Sink,
    orders: Vec<(Way, Order)>,
    began: Instant,
    /// When the block was shown last.
    shown: Instant,
}

impl Course {
    async fn run(&mut self) -> Result<(), Failure> {
        self.say(&format!("{WORKERS} workers begin"));
        self.produced(1, 4).await?;
        let killed = self.crew.kill_busiest().await?;
        self.say(&format!("worker {killed} is killed (SIGKILL)"));
        let (new, console) = self.crew.start().await?;
        self.say(&format!("worker {new} joins: http://{console}"));
        self.produced(1, 2).await?;
        let paused = self.crew.pause_busiest().await?;
        self.say(&format!("worker {paused} is stopped (SIGSTOP)"));
        // Longer than its lease: the others have what it had.
        let until = Instant::now() + LEASE * 2;
        while Instant::now() < until {
            self.look().await?;
        }
        self.crew.resume(paused).await?;
        self.say(&format!(
            "worker {paused} goes on, and does not know yet that others have its orders"
        ));
        self.all_done().await?;
        self.say("all orders are handled, and acked");
        Ok(())
    }

    /// Waits until this share of the orders is produced.
    async fn produced(&mut self, part: u64, of: u64) -> Result<(), Failure> {
        let orders = self.orders.len() as u64;
        while self.producer.produced() < orders * part / of {
            self.look().await?;
        }
        Ok(())
    }

    async fn all_done(&mut self) -> Result<(), Failure> {
        let (mut least, mut since) = (u64::MAX, Instant::now());
        loop {
            self.look().await?;
            let seen = self.see().await?;
            let left = seen.left();
            let is_produced = self.producer.produced() == self.orders.len() as u64;
            if left == 0 && is_produced {
                return self.show(&seen);
            }
            if left < least || !is_produced {
                (least, since) = (left, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                return Err(format!("nothing is acked for {}", seconds(PATIENCE)).into());
            }
        }
    }

    async fn look(&mut self) -> Result<(), Failure> {
        sleep(LOOK).await;
        self.crew.check()?;
        self.producer.check(self.orders.len() as u64).await?;
        if self.shown.elapsed() >= SHOW {
            self.shown = Instant::now();
            let seen = self.see().await?;
            self.show(&seen)?;
        }
        Ok(())
    }

    async fn see(&self) -> Result<Seen, Failure> {
        Ok(Seen {
            list: self.queue.status().await?,
            holders: self.queue.holders(usize::MAX).await?,
            partitions: self.sink.partitions().await?,
        })
    }

    fn show(&self, seen: &Seen) -> Result<(), Failure> {
        let block = Block {
            elapsed: self.began.elapsed(),
            produced: self.producer.produced(),
            of: self.orders.len() as u64,
            workers: &self.crew.statuses(),
            seen,
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
