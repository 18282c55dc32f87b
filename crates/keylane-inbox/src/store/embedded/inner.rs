//! The state that all handles of a store share.

use std::sync::{Arc, PoisonError, RwLock, mpsc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::op::{Alone, Op};
use super::settings::Settings;
use super::shared::Shared;
use crate::attempts::Marks;
use crate::error::StoreError;
use crate::limits::Limits;
use crate::message::NewMessage;

pub(super) struct Inner {
    /// `None` once the store is closing.
    calls: RwLock<Option<mpsc::Sender<Op>>>,
    /// Room in the channel in bytes; a unit is [`Settings::ROOM_BYTES`].
    room: Arc<Semaphore>,
    most_room: u32,
    pub(super) limits: Limits,
    pub(super) shared: Arc<Shared>,
    pub(super) marks: Option<Arc<Marks>>,
    /// The final result of the writer.
    pub(super) ended: watch::Receiver<Option<Result<(), StoreError>>>,
}

impl Inner {
    pub(super) fn new(
        calls: mpsc::Sender<Op>,
        settings: &Settings,
        shared: &Arc<Shared>,
        marks: Option<Arc<Marks>>,
        ended: watch::Receiver<Option<Result<(), StoreError>>>,
    ) -> Self {
        Self {
            calls: RwLock::new(Some(calls)),
            room: Arc::new(Semaphore::new(settings.room() as usize)),
            most_room: settings.room(),
            limits: settings.limits(),
            shared: Arc::clone(shared),
            marks,
            ended,
        }
    }

    /// Puts a call into the channel, which has no bound of its own. Returns the call if the store
    /// is closed.
    pub(super) fn send(&self, op: Op) -> Result<(), Op> {
        let calls = self.calls.read().unwrap_or_else(PoisonError::into_inner);
        match &*calls {
            Some(calls) => calls.send(op).map_err(|mpsc::SendError(op)| op),
            None => Err(op),
        }
    }

    /// Sends the last call.
    pub(super) fn send_last(&self) {
        let mut calls = self.calls.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(calls) = calls.take() {
            // If the writer is gone, there is nothing to end.
            let _ = calls.send(Op::Alone(Alone::Close));
        }
        drop(calls);
        // Callers that wait for room get their messages back.
        self.room.close();
    }

    /// Waits for room. A call that is larger than all of it gets all of it.
    pub(super) async fn room(&self, messages: &[NewMessage]) -> Option<OwnedSemaphorePermit> {
        let units = |message: &NewMessage| message.bytes().div_ceil(Settings::ROOM_BYTES).max(1);
        let units = messages.iter().map(units).sum::<usize>();
        let units = u32::try_from(units).map_or(self.most_room, |units| units.min(self.most_room));
        Arc::clone(&self.room).acquire_many_owned(units).await.ok()
    }
}
