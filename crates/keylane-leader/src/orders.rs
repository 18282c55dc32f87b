//! What the user wants of a candidate.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::error::CommandError;
use crate::machine::Name;
use crate::store::CandidateId;

/// A command to a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Resign(Option<CandidateId>),
    Close,
}

/// The last command that the task has not taken, and what the candidate does.
#[derive(Debug)]
pub(crate) struct Orders {
    last: Mutex<Option<Order>>,
    wake: Notify,
    stage: AtomicU8,
}

const STANDS: u8 = 0;
const LEADS: u8 = 1;
const OVER: u8 = 2;

impl Orders {
    pub(crate) fn new() -> Self {
        Self {
            last: Mutex::new(None),
            wake: Notify::new(),
            stage: AtomicU8::new(STANDS),
        }
    }

    /// Gives a command. The last one counts, and none counts after `Close`.
    pub(crate) fn give(&self, order: Order) -> Result<(), CommandError> {
        match (self.stage.load(Ordering::Acquire), &order) {
            (OVER, _) => return Err(CommandError::Over),
            (STANDS, Order::Resign(_)) => return Err(CommandError::NotLeading),
            _ => {}
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != Some(Order::Close) {
            *last = Some(order);
        }
        drop(last);
        self.wake.notify_one();
        Ok(())
    }

    /// Waits for a command.
    ///
    /// # Cancel safety
    ///
    /// No command is lost.
    pub(crate) async fn next(&self) -> Order {
        loop {
            let woken = self.wake.notified();
            let last = self
                .last
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(order) = last {
                return order;
            }
            woken.await;
        }
    }

    /// Records what the candidate does.
    pub(crate) fn set(&self, name: Name) {
        let stage = match name {
            Name::Candidate | Name::Preparing | Name::Leaving => STANDS,
            Name::Inaugurating | Name::Executing | Name::Doubtful => LEADS,
            Name::Over => OVER,
        };
        self.stage.store(stage, Ordering::Release);
    }

    pub(crate) fn leads(&self) -> bool {
        self.stage.load(Ordering::Acquire) == LEADS
    }
}
