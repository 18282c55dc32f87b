//! From a repository to a report: read, number, send, wait, compare.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::designs::dynamic::Dynamic;
use crate::designs::per_key::PerKey;
use crate::designs::single::Single;
use crate::designs::static_::Static;
use crate::designs::{Choice, Design, DesignError, Limits};
use crate::event::Event;
use crate::git::{GitError, Repository};
use crate::handler::Handler;
use crate::progress::Progress;
use crate::report::{self, Heading, Report};

/// Replays as the command line says. Whether every replay was good.
pub(crate) async fn run(arguments: &Arguments, out: &mut impl Write) -> Result<bool, ReplayError> {
    let repository = Repository::open(&arguments.path).await?;
    let (designs, limits) = (arguments.designs(), arguments.limits());
    let heading = Heading {
        repository: &repository,
        limits: format!(
            "concurrency {}, capacity {}, work {}",
            report::grouped(limits.concurrency as u64),
            report::grouped(limits.capacity as u64),
            if arguments.work.is_zero() {
                "none".to_owned()
            } else {
                report::duration(arguments.work)
            }
        ),
    };
    writeln!(out, "{heading}")?;

    // The first reading also warms the disk's cache, so that no design pays for the others.
    let git_alone = if designs.len() > 1 {
        Some(read_only(&repository).await?)
    } else {
        None
    };
    let mut reports = Vec::with_capacity(designs.len());
    for design in designs {
        let handler = Arc::new(Handler::new(arguments.work));
        let replay = Replay {
            repository: &repository,
            name: design.to_string(),
            handler,
            hottest: arguments.hottest,
        };
        let report = replay.run_choice(design, limits).await?;
        if git_alone.is_none() || !report.is_good() {
            writeln!(out, "{report}")?;
        }
        reports.push(report);
    }
    if let Some(git_alone) = git_alone {
        write!(out, "{}", report::table(git_alone, &reports))?;
    }
    Ok(reports.iter().all(Report::is_good))
}

/// One pass over the history through one design.
pub(crate) struct Replay<'a> {
    pub(crate) repository: &'a Repository,
    /// The design's.
    pub(crate) name: String,
    pub(crate) handler: Arc<Handler>,
    /// How many of the hottest paths to report.
    pub(crate) hottest: usize,
}

impl Replay<'_> {
    async fn run_choice(self, design: Choice, limits: Limits) -> Result<Report, ReplayError> {
        let handler = self.handler.clone();
        match design {
            Choice::Single => self.run(Single::start(handler, limits)).await,
            Choice::PerKey => self.run(PerKey::start(handler, limits)).await,
            Choice::Static(workers) => self.run(Static::start(&handler, workers, limits)).await,
            Choice::Dynamic => self.run(Dynamic::start(handler, limits)?).await,
        }
    }

    /// Sends the whole history to `design` and compares what came of it with what git says.
    pub(crate) async fn run(self, design: impl Design) -> Result<Report, ReplayError> {
        let Self {
            repository,
            name,
            handler,
            hottest,
        } = self;
        let progress = Progress::start(name.clone(), repository.commits(), handler.clone());
        let started = Instant::now();
        tokio::select! {
            ended = feed(repository, design, &handler, &progress) => ended?,
            stalled = standstill(&handler) => return Err(stalled),
        }
        let elapsed = started.elapsed();
        drop(progress);

        Ok(Report {
            design: name,
            elapsed,
            handled: handler.events_handled(),
            summary: handler.table().summary(hottest),
            waits: handler.waits(),
            most_in_flight: handler.in_flight().most(),
            comparison: handler.table().compare(repository.tree().await?),
        })
    }
}

/// Sends event after event, and returns when the design is done with them.
async fn feed(
    repository: &Repository,
    mut design: impl Design,
    handler: &Handler,
    progress: &Progress,
) -> Result<(), ReplayError> {
    let mut history = repository.history()?;
    let mut number = 0;
    while let Some(change) = history.next().await? {
        progress.read(history.commits());
        number += 1;
        let event = Event {
            number,
            change,
            sent: Instant::now(),
        };
        handler.sent(&event);
        design.send(event).await?;
    }
    progress.read(history.commits());
    Ok(design.finish().await?)
}

/// Returns if events wait and nothing happens with any of them, for so long that nothing will.
async fn standstill(handler: &Handler) -> ReplayError {
    let (mut seen, mut quiet) = (0, 0);
    while quiet < STANDSTILL_SECS {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let handled = handler.events_handled();
        let waits = handled < handler.events_sent() && handler.in_flight().now() == 0;
        quiet = if waits && handled == seen {
            quiet + 1
        } else {
            0
        };
        seen = handled;
    }
    ReplayError::Standstill {
        handled: seen,
        sent: handler.events_sent(),
    }
}

/// How fast git is when nothing is handled: no design can be faster.
async fn read_only(repository: &Repository) -> Result<(u64, Duration), GitError> {
    let started = Instant::now();
    let mut history = repository.history()?;
    let mut events = 0;
    while history.next().await?.is_some() {
        events += 1;
    }
    Ok((events, started.elapsed()))
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("the design stopped")]
    Design(#[from] DesignError),
    #[error(
        "the design stands still: {handled} of {sent} events are handled, and none has been \
         running for {STANDSTILL_SECS} seconds"
    )]
    Standstill { handled: u64, sent: u64 },
    #[error("the report cannot be written")]
    Output(#[from] io::Error),
}

const STANDSTILL_SECS: u32 = 30;
