//! The floor: one bounded channel and one loop, without keys.

use tokio::sync::mpsc;

use super::batch::{Message, handle};

/// Starts the loop on the current runtime.
pub(crate) fn hop(capacity: usize) -> mpsc::Sender<Message> {
    let (intake, mut messages) = mpsc::channel(capacity);
    tokio::spawn(async move {
        while let Some(message) = messages.recv().await {
            let Ok(()) = handle(message).await;
        }
    });
    intake
}
