//! A bar on a terminal, a line now and then elsewhere; always on stderr.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::handler::Handler;
use crate::report::grouped;

/// Shows how far a replay is, until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    commits: Arc<AtomicU64>,
    bar: Option<ProgressBar>,
    ticker: JoinHandle<()>,
}

impl Progress {
    pub(crate) fn start(name: String, total: u64, handler: Arc<Handler>) -> Self {
        let commits = Arc::new(AtomicU64::new(0));
        let bar = std::io::stderr().is_terminal().then(|| bar(&name, total));
        let ticker = tokio::spawn({
            let (commits, bar) = (commits.clone(), bar.clone());
            async move {
                let every = Duration::from_millis(if bar.is_some() { 100 } else { 5_000 });
                loop {
                    tokio::time::sleep(every).await;
                    let commits = commits.load(Ordering::Relaxed);
                    let counts = counts(&handler);
                    match &bar {
                        Some(bar) => {
                            bar.set_position(commits);
                            bar.set_message(counts);
                        }
                        None => {
                            let (commits, total) = (grouped(commits), grouped(total));
                            eprintln!("{name}: {commits} of {total} commits, {counts}");
                        }
                    }
                }
            }
        });
        Self {
            commits,
            bar,
            ticker,
        }
    }

    /// So many commits have been read.
    pub(crate) fn read(&self, commits: u64) {
        self.commits.store(commits, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.ticker.abort();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(name: &str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {human_pos}/{human_len} {msg}")
        .expect("the template is well-formed");
    ProgressBar::new(total)
        .with_prefix(name.to_owned())
        .with_style(style)
}

fn counts(handler: &Handler) -> String {
    let (handled, sent) = (handler.events_handled(), handler.events_sent());
    let running = handler.in_flight().now();
    format!(
        "{} of {} events handled, {} running",
        grouped(handled),
        grouped(sent),
        grouped(running)
    )
}
