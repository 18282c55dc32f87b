//! Ctrl-C, while letters are redriven or purged.

use std::future::pending;
use std::pin::{Pin, pin};

use tokio::signal::ctrl_c;

/// What has become of a step.
pub(super) enum Step<T> {
    Done(T),
    /// A second Ctrl-C has come: it may be done.
    Left,
}

/// Hears Ctrl-C, which does not end the program from the first step on.
pub(super) struct Interrupt {
    heard: Pin<Box<dyn Future<Output = ()>>>,
    is_heard: bool,
}

impl Interrupt {
    pub(super) fn new() -> Self {
        Self {
            heard: Box::pin(heard()),
            is_heard: false,
        }
    }

    /// Whether no further step is to begin.
    pub(super) fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// Finishes a step, also if Ctrl-C comes; unless it comes twice.
    pub(super) async fn finish<T>(&mut self, step: impl Future<Output = T>) -> Step<T> {
        let mut step = pin!(step);
        loop {
            tokio::select! {
                biased;
                () = &mut self.heard => {
                    if self.is_heard {
                        return Step::Left;
                    }
                    self.is_heard = true;
                    self.heard = Box::pin(heard());
                    eprintln!("keylane: stops after this step; press Ctrl-C again to stop at once");
                }
                done = &mut step => return Step::Done(done),
            }
        }
    }
}

/// Without a handler, Ctrl-C ends the program.
async fn heard() {
    if ctrl_c().await.is_err() {
        pending().await
    }
}
