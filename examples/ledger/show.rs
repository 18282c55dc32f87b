//! The course of a run: workers, a kill, a pause, and the verdict.

use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::time::Duration;

use examples::say::{self, grouped, seconds};
use examples::stop_signal;
use testkit_servers::{Postgres, ServerError};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::Failure;
use crate::arguments::Show;
use crate::crew::{Crew, Tally};
use crate::feed::feed;
use crate::judge::Verdict;
use crate::place::Place;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::watch::{Holdings, Watch};
use crate::worker::{LOST, TTL};

const WORKERS: usize = 3;

/// For the parent: what watches, what feeds, and one to spare.
const CONNECTIONS: u32 = 4;

/// After so long without any progress, something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked at what the workers have done.
const LOOK: Duration = Duration::from_millis(50);

/// `false` if the books do not balance.
pub(crate) async fn show(show: &Show) -> Result<bool, Failure> {
    let stops = stop_signal();
    tokio::pin!(stops);
    let server = match &show.url {
        Some(_) => None,
        None => tokio::select! {
            server = Postgres::start() => Some(server.map_err(not_started)?),
            () = &mut stops => return Err("interrupted".into()),
        },
    };
    let place = match (&show.url, &server) {
        (Some(url), _) => Place::new(url.clone()),
        (None, Some(server)) => Place::new(server.create_database().await?),
        (None, None) => unreachable!("one of the two is there"),
    };
    match &server {
        Some(server) => say::line(format_args!(
            "PostgreSQL runs on port {} for this alone, and ends with it.\n",
            server.port()
        )),
        None => say::line(format_args!("The schema is {}.\n", place.schema())),
    }
    let shown = tokio::select! {
        shown = in_place(show, &place) => shown,
        () = &mut stops => Err("interrupted; the workers were killed".into()),
    };
    // The server takes everything with it.
    if server.is_none() && !show.keep {
        let removed = timeout(PATIENCE, place.remove()).await;
        return shown.and_then(|is_good| removed?.map(|()| is_good));
    }
    shown
}

fn not_started(error: ServerError) -> Failure {
    match error {
        ServerError::Missing { what } => format!(
            "PostgreSQL is not installed here ({what} is missing): install it, with \
             `apt-get install postgresql` or `cargo xtask setup`, or name one that runs with \
             `--url postgres://user:password@host:port/database`"
        )
        .into(),
        error => error.into(),
    }
}

async fn in_place(show: &Show, place: &Place) -> Result<bool, Failure> {
    let plan = Plan::new(show.transfers, show.accounts, show.seed);
    let pool = place.connect("demo", CONNECTIONS).await?;
    place.create(&pool, &plan).await?;
    let watch = Arc::new(Watch::new(pool.clone(), place.inbox(&pool).await?));
    let how = match show.is_apart {
        false => "each in one transaction with its done-mark",
        true => "each in a transaction, and marked as done in another one",
    };
    say::line(format_args!(
        "{} transfers between {} accounts are accepted, and booked by {WORKERS} worker processes,\n\
         {how}. A worker that says nothing for {}\n\
         loses its accounts to the others.\n",
        grouped(show.transfers),
        grouped(show.accounts),
        seconds(TTL),
    ));
    // Two workers can have all accounts, and none takes all of them.
    let keys = show.accounts.div_ceil(2) as usize;
    let mut crew = Crew::new(place.clone(), keys, show.work, show.is_apart);
    for _ in 0..WORKERS {
        crew.start().await?;
    }
    let transfers = u64::from(show.transfers);
    let mut course = Course {
        crew,
        progress: Progress::start(Arc::clone(&watch), transfers),
        began: Instant::now(),
        watch: &watch,
        transfers,
    };
    tokio::try_join!(feed(&plan, &watch), course.run())?;
    let elapsed = course.began.elapsed();
    drop(course.progress);
    let tallies = course.crew.stop().await?;
    let verdict = Verdict::of(&plan, &watch.books().await?);
    say::line(format_args!(
        "\n{}{verdict}",
        told(&tallies, elapsed, show.is_apart)
    ));
    pool.close().await;
    Ok(verdict.is_good())
}

/// What is done to the workers.
struct Course<'a> {
    crew: Crew,
    progress: Progress,
    began: Instant,
    watch: &'a Watch,
    transfers: u64,
}

impl Course<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        self.say(format_args!("{WORKERS} workers begin"));

        self.booked(self.transfers / 5).await?;
        let killed = self.busiest().await?;
        let at = Instant::now();
        self.crew.kill(&killed).await?;
        self.say(format_args!("{killed} is killed (SIGKILL)"));
        let since = self.watch.holdings().await?;
        let next = self.crew.start().await?;
        self.say(format_args!("{next} takes its place"));
        self.taken_over(&killed, &since, at).await?;

        self.booked(self.transfers / 2).await?;
        let paused = self.busiest().await?;
        let at = Instant::now();
        self.crew.signal(&paused, "STOP").await?;
        self.say(format_args!("{paused} is paused (SIGSTOP)"));
        let since = self.watch.holdings().await?;
        self.taken_over(&paused, &since, at).await?;
        sleep_until(at + TTL).await;
        self.crew.signal(&paused, "CONT").await?;
        self.say(format_args!(
            "{paused} goes on, in the middle of what it was doing"
        ));

        self.booked(self.transfers).await?;
        self.say(format_args!("nothing waits any more"));
        Ok(())
    }

    /// Waits until so many transfers are booked.
    async fn booked(&mut self, transfers: u64) -> Result<(), Failure> {
        let (mut most, mut since) = (0, Instant::now());
        loop {
            let (booked, waiting) = self.watch.booked().await?;
            if booked >= transfers {
                return Ok(());
            }
            self.crew.check()?;
            if booked > most {
                (most, since) = (booked, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                return Err(format!("{waiting} messages wait, and none of them is booked").into());
            }
            sleep(LOOK).await;
        }
    }

    /// The worker with the most accounts.
    async fn busiest(&mut self) -> Result<String, Failure> {
        let since = Instant::now();
        loop {
            self.crew.check()?;
            let accounts = self.watch.holdings().await?.accounts.into_iter();
            if let Some((worker, _)) = accounts.max_by_key(|(_, accounts)| accounts.len()) {
                return Ok(worker);
            }
            if since.elapsed() > PATIENCE {
                return Err("no worker has an account in which something waits".into());
            }
            sleep(LOOK / 10).await;
        }
    }

    /// Waits until others have booked in all accounts of a worker in which something waits.
    async fn taken_over(
        &mut self,
        worker: &str,
        since: &Holdings,
        stopped_at: Instant,
    ) -> Result<(), Failure> {
        let had = since.of(worker).len();
        loop {
            if let Some(taken) = self.watch.taken_over(worker, since).await? {
                let took = seconds(stopped_at.elapsed());
                self.say(format_args!(
                    "others have {taken} of its {had} accounts with messages, after {took}"
                ));
                return Ok(());
            }
            if stopped_at.elapsed() > PATIENCE {
                return Err(format!("the accounts of {worker} are not taken over").into());
            }
            sleep(LOOK).await;
        }
    }

    fn say(&self, text: impl Display) {
        let at = seconds(self.began.elapsed());
        self.progress.say(format_args!("{at:>8}  {text}"));
    }
}

/// What the workers have counted.
fn told(tallies: &[Arc<Tally>], elapsed: Duration, is_apart: bool) -> String {
    let sum = |of: fn(&Tally) -> u64| grouped(tallies.iter().map(|tally| of(tally)).sum::<u64>());
    let stale = tallies.iter().filter(|tally| tally.stale() > 0);
    let stale: Vec<String> = stale
        .map(|tally| format!("{} of {}", grouped(tally.stale()), tally.name))
        .collect();
    let stale = match stale.is_empty() {
        true => "0".to_owned(),
        false => stale.join(", "),
    };
    let mut text = String::new();
    let mut line = |name: &str, value: String| _ = writeln!(text, "{name:<16}{value}");
    line("took", seconds(elapsed));
    line(
        "failed",
        format!("{}: rolled back, and tried again", sum(Tally::failed)),
    );
    line(
        "answers lost",
        format!("{}: one commit in {LOST} is not heard of", sum(Tally::lost)),
    );
    // Nothing notices, where nothing asks.
    if !is_apart {
        line(
            "stale commits",
            format!("{stale}: refused, because others had the account"),
        );
        let earlier = sum(Tally::earlier);
        line(
            "done before",
            format!("{earlier}: handled once more, and nothing changed"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_without_postgresql_is_said() {
        let text = not_started(ServerError::Missing { what: "initdb" }).to_string();
        for part in ["initdb is missing", "install", "--url postgres://"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
