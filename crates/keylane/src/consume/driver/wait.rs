//! What wakes the driver.

use std::pin::Pin;
use std::task::{Context, Poll};

use keylane_rt::unwind::caught;
use keylane_source::{Received, SourceError};

use super::super::control::Command;
use super::core::panicked;

/// What woke the driver.
pub(super) enum Wakeup<P> {
    Command(Command),
    /// Every `Intake` is gone, or the dispatcher has ended.
    Ended,
    News,
    Room,
    Time,
    Received(Result<Received<P>, SourceError>),
}

/// Polls the source.
pub(super) fn poll_source<P>(
    receive: Pin<&mut impl Future<Output = Result<Received<P>, SourceError>>>,
    cx: &mut Context<'_>,
) -> Poll<Wakeup<P>> {
    match caught(|| receive.poll(cx)) {
        Ok(received) => received.map(Wakeup::Received),
        Err(text) => Poll::Ready(Wakeup::Received(Err(panicked(&text)))),
    }
}

/// Polls for room. `is_behind`: there was room already.
pub(super) fn poll_room<P>(is_behind: bool, room: impl FnOnce() -> Poll<()>) -> Poll<Wakeup<P>> {
    match caught(room) {
        Ok(Poll::Pending) if !is_behind => Poll::Pending,
        Ok(_) => Poll::Ready(Wakeup::Room),
        // As in `Machine::place`.
        Err(text) => Poll::Ready(Wakeup::Received(Err(panicked(&text)))),
    }
}
