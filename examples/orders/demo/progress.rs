//! A bar on a terminal, a line now and then elsewhere; always on stderr.

use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

use super::client::Client;
use super::load::Counts;
use crate::say::{self, grouped};

/// Shows how far the load is, until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    ticker: JoinHandle<()>,
}

impl Progress {
    pub(crate) fn start(counts: Arc<Counts>, client: Client) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(counts.orders));
        let shown = bar.clone();
        let ticker = tokio::spawn(async move {
            let mut beat = interval(Duration::from_millis(if shown.is_some() {
                100
            } else {
                2_000
            }));
            // Once at once would show nothing.
            beat.tick().await;
            loop {
                beat.tick().await;
                // Beside the load: an answer that takes long, or none, is no reason to wait.
                let stats = timeout(Duration::from_millis(500), client.stats()).await;
                let message = match stats {
                    Ok(Ok(stats)) => format!(
                        "{} on the disk, {} dead letters",
                        grouped(stats.waiting),
                        grouped(stats.dead_letters)
                    ),
                    _ => "the worker does not answer".to_owned(),
                };
                let accepted = counts.accepted();
                match &shown {
                    Some(bar) => {
                        bar.set_position(accepted);
                        bar.set_message(message);
                    }
                    None => {
                        let (accepted, orders) = (grouped(accepted), grouped(counts.orders));
                        eprintln!("{accepted} of {orders} accepted, {message}");
                    }
                }
            }
        });
        Self { bar, ticker }
    }

    /// A line above the bar.
    pub(crate) fn say(&self, text: impl Display) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say::line(text)),
            None => say::line(text),
        }
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

fn bar(orders: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} accepted, {msg}")
        .expect("the template is well-formed");
    ProgressBar::new(orders).with_style(style)
}
