//! Decides which calls share a commit.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::op::{Alone, Op};
use super::settings::Settings;

/// Takes calls from the channel in groups.
pub(super) struct Groups {
    calls: Receiver<Op>,
    /// The call that did not fit into the previous group.
    next: Option<Op>,
    most_messages: usize,
    most_bytes: usize,
    linger: Duration,
}

/// The next step of the writer.
pub(super) enum Next {
    /// Commit these calls, in this order, in one transaction.
    Commit(Vec<Op>),
    Alone(Alone),
    /// No call came in time.
    TimeOut,
    /// No call can come any more.
    End,
}

impl Groups {
    pub(super) fn new(calls: Receiver<Op>, settings: &Settings) -> Self {
        Self {
            calls,
            next: None,
            most_messages: settings.group_messages,
            most_bytes: settings.group_bytes,
            linger: settings.linger,
        }
    }

    /// Waits for a call, and takes the calls that came with it. Waits at most for `wait`.
    pub(super) fn next(&mut self, wait: Option<Duration>) -> Next {
        let first = match self.next.take() {
            Some(op) => op,
            None => match self.wait(wait) {
                Ok(op) => op,
                Err(RecvTimeoutError::Timeout) => return Next::TimeOut,
                Err(RecvTimeoutError::Disconnected) => return Next::End,
            },
        };
        if let Op::Alone(alone) = first {
            return Next::Alone(alone);
        }
        let (mut messages, mut bytes) = first.size();
        let mut group = vec![first];
        let until = Instant::now() + self.linger;
        while messages < self.most_messages && bytes < self.most_bytes {
            let Some(op) = self.another(until) else { break };
            let size = op.size();
            messages += size.0;
            bytes += size.1;
            let fits = messages <= self.most_messages && bytes <= self.most_bytes;
            if !fits || matches!(op, Op::Alone(_)) {
                self.next = Some(op);
                break;
            }
            group.push(op);
        }
        Next::Commit(group)
    }

    fn wait(&self, wait: Option<Duration>) -> Result<Op, RecvTimeoutError> {
        match wait {
            Some(wait) => self.calls.recv_timeout(wait),
            None => self
                .calls
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn another(&self, until: Instant) -> Option<Op> {
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => self.calls.try_recv().ok(),
            wait => self.calls.recv_timeout(wait).ok(),
        }
    }
}
