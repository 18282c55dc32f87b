//! The task that owns a source, and its calls of it.

use keylane_rt::clock::{self, Alarm};
use keylane_rt::{Arc, mpsc};
use keylane_source::{Features, Source};

use super::super::control::{Command, Control};
use super::super::settings::IntakeSettings;
use super::call::call;
use super::core::{Call, Trouble};
use super::machine::Machine;
use crate::dispatcher::Dispatcher;
use crate::engine::News;
use crate::error::ConsumeError;
use crate::types::{Error, Key, Message, Output};

pub(in super::super) struct Driver<K, M, O, E, S: Source<Message = M>> {
    pub(super) source: S,
    pub(super) machine: Machine<K, M, O, E, S::Position>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) news: News,
    /// Whether the source is asked first in the next turn, so that neither side waits for ever.
    pub(super) source_first: bool,
    pub(super) alarm: Option<Alarm>,
}

impl<K: Key, M: Message, O: Output, E: Error, S: Source<Message = M>> Driver<K, M, O, E, S> {
    pub(in super::super) fn new(
        dispatcher: Dispatcher<K, M, O, E>,
        (source, features): (S, Features),
        settings: IntakeSettings,
        control: Arc<Control>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<Self, ConsumeError> {
        Ok(Self {
            machine: Machine::new(dispatcher, &source, features, settings, control)?,
            source,
            commands,
            news: News::default(),
            source_first: false,
            alarm: None,
        })
    }

    /// Does what the core has decided, until nothing is left of it.
    pub(super) async fn carry_out(&mut self) {
        while let Some(call) = self.machine.next_call() {
            match call {
                Call::Open => self.open().await,
                call => {
                    let answer = self.call(&call).await;
                    self.machine.core.answered(call, answer, clock::now());
                }
            }
        }
    }

    async fn call(&mut self, what: &Call<S::Position>) -> Result<(), Trouble> {
        let limit = self.machine.core.settings().stall_after;
        let source = &mut self.source;
        match what {
            // It has a way of its own: a stop does not wait for it.
            Call::Open => Ok(()),
            Call::Settle(told) => call(limit, source.settle(told)).await,
            Call::Confirm => call(limit, source.confirm()).await,
            Call::Release(generations) => call(limit, source.release(generations)).await,
            Call::Extend(positions) => call(limit, source.extend(positions)).await,
            Call::Close => call(limit, source.close()).await,
        }
    }
}
