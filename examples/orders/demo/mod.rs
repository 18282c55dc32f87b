//! It shows itself: a worker, a load, a kill in the middle, and a judge.

mod worker;

mod plan;

mod load;

mod client;

mod crash;

mod judge;

mod progress;

mod report;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use crate::arguments::{Place, Show};
use crate::{Failure, say, service};
use client::Client;
use crash::AtKill;
use judge::{Evidence, Verdict};
use load::Load;
use plan::Plan;
use progress::Progress;
use report::Report;
use worker::Worker;

/// After so long without any order done, something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many dead letters are left to be looked at.
const KEPT_LETTERS: usize = 2;

/// Shows it. `false` if the verdict was asked for, and is not good.
pub(crate) async fn show(show: &Show) -> Result<bool, Failure> {
    let temporary = match &show.directory {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("orders-").tempdir()?),
    };
    let directory = match (&show.directory, &temporary) {
        (Some(directory), _) => directory.clone(),
        (None, Some(temporary)) => temporary.path().to_owned(),
        (None, None) => unreachable!("one of the two is there"),
    };
    let demo = Demo {
        plan: Arc::new(Plan::new(show.orders)),
        directory,
        show,
    };
    // One for all of it: a Ctrl-C between two of them would be heard by neither.
    let mut stops = pin!(service::stop_signal());
    let (worker, is_good) = tokio::select! {
        shown = demo.run() => shown?,
        () = &mut stops => return Err("interrupted; the worker was killed".into()),
    };
    if show.stay {
        let address = worker.address();
        say::line(format_args!(
            "http://{address}   the console; Ctrl-C ends it\n"
        ));
        stops.await;
    }
    for line in worker.stop().await? {
        say::line(format_args!("worker: {line}"));
    }
    if !show.stay {
        say::line("\nWith `-- --serve --load 60000` the console stays up.");
    }
    Ok(is_good || !show.check)
}

struct Demo<'a> {
    plan: Arc<Plan>,
    directory: PathBuf,
    show: &'a Show,
}

impl Demo<'_> {
    /// The worker goes on, and whether the verdict is good.
    async fn run(&self) -> Result<(Worker, bool), Failure> {
        let mut worker = Worker::start(&self.place(self.show.port)).await?;
        let address = worker.address();
        let client = Client::new(address);
        say::line(format_args!(
            "http://{address}   the console, while this runs\n\n\
             {} orders of {} users are posted to a worker process. It answers 202 when an order is on\n\
             the disk. The orders of {} take {} each, and the bank declines those of {}.\n",
            say::grouped(self.plan.orders()),
            say::grouped(self.plan.users().len() as u64),
            plan::SLOW,
            say::time(plan::SLOW_TAKES),
            plan::POOR,
        ));

        let load = Load::start(Arc::clone(&self.plan), client.clone());
        let progress = Progress::start(load.counts(), client.clone());
        load.half().await;
        let killed = Instant::now();
        worker.kill().await?;
        let at_kill = AtKill::look(&self.directory.join(service::INBOX), &self.plan).await?;
        worker = Worker::start(&self.place(address.port())).await?;
        progress.say(format_args!(
            "kill -9 in the middle, after {} orders: {} waited on the disk. Back after {}.",
            say::grouped(load.counts().accepted()),
            say::grouped(at_kill.waiting.len() as u64),
            say::time(killed.elapsed()),
        ));
        let sent = load.finished().await?;
        progress.say(format_args!(
            "All {} are answered with 202. What still waits is finished now, then some dead letters are redriven.\n",
            say::grouped(self.plan.orders())
        ));
        self.drained(&client).await?;
        drop(progress);

        let verdict = self.judged(&client, at_kill).await?;
        let report = Report {
            plan: &self.plan,
            sent: &sent,
            verdict: &verdict,
        };
        say::line(&report);
        if self.show.directory.is_some() {
            let path = self.directory.join("repeated.txt");
            std::fs::write(&path, report.repeated_ids())?;
            say::line(format_args!("All that was repeated: {}\n", path.display()));
        }
        Ok((worker, verdict.is_good()))
    }

    fn place(&self, port: u16) -> Place {
        Place {
            directory: self.directory.clone(),
            port,
        }
    }

    /// Redrives most of the dead letters, as an operator would, and judges what lies on the disk.
    async fn judged(&self, client: &Client, at_kill: AtKill) -> Result<Verdict, Failure> {
        let dead = client.letters().await?;
        let redriven = dead.len().saturating_sub(KEPT_LETTERS);
        let redriven: Vec<u64> = dead.iter().take(redriven).map(|it| it.sequence).collect();
        client.redrive(&redriven).await?;
        self.drained(client).await?;
        let evidence = Evidence {
            plan: &self.plan,
            at_kill,
            dead,
            redriven,
            left: client.letters().await?,
        };
        let ledger = self.directory.join(service::LEDGER);
        Ok(block_in_place(|| Verdict::of(&evidence, &ledger))?)
    }

    /// Waits until no order waits.
    async fn drained(&self, client: &Client) -> Result<(), Failure> {
        let (mut least, mut since) = (u64::MAX, Instant::now());
        loop {
            let waiting = client.stats().await?.waiting;
            if waiting == 0 {
                return Ok(());
            }
            if waiting < least {
                (least, since) = (waiting, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                return Err(format!("{waiting} orders wait, and none of them gets done").into());
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}
