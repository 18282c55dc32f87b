//! keylane: an event may start when no other of its path is in flight.

use std::convert::Infallible;
use std::sync::Arc;

use keylane::{Dispatcher, Overflow};

use crate::designs::{Design, DesignError, Limits};
use crate::event::{Event, RepoPath};
use crate::handler::Handler;

pub(crate) struct Dynamic {
    events: Dispatcher<RepoPath, Event, (), Infallible>,
}

impl Dynamic {
    pub(crate) fn start(handler: Arc<Handler>, limits: Limits) -> Result<Self, DesignError> {
        let events = Dispatcher::builder(|event: &Event| event.change.path.clone())
            .concurrency(limits.concurrency)
            .capacity(limits.capacity)
            // History has one sender. Were it to wait for one hot path, all would wait with it.
            .lane_capacity(limits.capacity, Overflow::Wait)
            .spawn(move |event: Event| {
                let handler = handler.clone();
                async move {
                    handler.handle(event).await;
                    Ok::<_, Infallible>(())
                }
            })?;
        Ok(Self { events })
    }
}

impl Design for Dynamic {
    async fn send(&mut self, event: Event) -> Result<(), DesignError> {
        self.events
            .send(event)
            .await
            .map_err(|_| DesignError::WorkerGone)
    }

    async fn finish(self) -> Result<(), DesignError> {
        let report = self.events.drain().await;
        if report.done == report.accepted {
            Ok(())
        } else {
            Err(DesignError::Unhandled {
                handled: report.done,
                sent: report.accepted,
            })
        }
    }
}
