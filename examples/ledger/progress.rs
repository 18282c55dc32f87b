//! A bar on a terminal, a line now and then elsewhere; always on stderr.

use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use examples::say::{self, grouped};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::watch::Watch;

/// Shows how far it is, until it is dropped.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    ticker: JoinHandle<()>,
}

impl Progress {
    pub(crate) fn start(watch: Arc<Watch>, transfers: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(transfers));
        let shown = bar.clone();
        let beat = match shown {
            Some(_) => Duration::from_millis(100),
            None => Duration::from_secs(2),
        };
        let ticker = tokio::spawn(async move {
            let mut beat = interval(beat);
            // Once at once would show nothing.
            beat.tick().await;
            loop {
                beat.tick().await;
                let Ok((booked, waiting)) = watch.booked().await else {
                    continue;
                };
                let waiting = grouped(waiting);
                match &shown {
                    Some(bar) => {
                        bar.set_position(booked);
                        bar.set_message(format!("{waiting} messages wait"));
                    }
                    None => {
                        let (booked, transfers) = (grouped(booked), grouped(transfers));
                        eprintln!("{booked} of {transfers} booked, {waiting} messages wait");
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

fn bar(transfers: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} booked, {msg}")
        .expect("the template is well-formed");
    ProgressBar::new(transfers).with_style(style)
}
