//! The call that opens the source. A stop does not wait for a source that does not answer.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures::FutureExt;
use keylane_rt::clock::{self, Alarm};
use keylane_source::{Source, SourceError};

use super::super::control::Command;
use super::call::alarm_after;
use super::core::{SWEEP, Trouble, later};
use super::task::Driver;
use crate::types::{Error, Key, Message, Output};

/// What happens while the source is opened.
enum Opening {
    Command(Command),
    Opened(Result<(), SourceError>),
    /// It is time to look at what ends.
    Look,
    Late,
}

impl<K: Key, M: Message, O: Output, E: Error, S: Source<Message = M>> Driver<K, M, O, E, S> {
    /// Opens the source, unless a stop comes first: then the call is dropped.
    pub(super) async fn open(&mut self) {
        let Self {
            source,
            machine,
            commands,
            ..
        } = self;
        let limit = machine.core.settings().stall_after;
        let mut alarm = alarm_after(limit);
        let mut look = Alarm::new(later(clock::now(), SWEEP));
        let mut open = pin!(AssertUnwindSafe(source.open()).catch_unwind());
        while machine.core.phase().is_opening() {
            let next = poll_fn(|cx| {
                if let Poll::Ready(Some(command)) = commands.poll_recv(cx) {
                    return Poll::Ready(Opening::Command(command));
                }
                let opened = poll_open(open.as_mut(), cx);
                if opened.is_ready() {
                    return opened;
                }
                if look.poll(cx).is_ready() {
                    return Poll::Ready(Opening::Look);
                }
                let late = alarm.as_mut().map(|alarm| alarm.poll(cx));
                late.map_or(Poll::Pending, |late| late.map(|()| Opening::Late))
            });
            let next = next.await;
            let (core, now) = (&mut machine.core, clock::now());
            match next {
                Opening::Command(command) => core.command(command),
                Opening::Opened(Ok(())) => core.opened(now),
                Opening::Opened(Err(error)) => core.open_failed(&Trouble::Failed(error), now),
                Opening::Late => core.open_failed(&Trouble::Late(limit), now),
                Opening::Look => {
                    look.reset(later(now, SWEEP));
                    match machine.inlet.is_closed() {
                        true => core.closed(now),
                        false => core.look(),
                    }
                }
            }
            let call = machine.next_call();
            debug_assert!(call.is_none(), "a source that is not open is not called");
        }
    }
}

fn poll_open<R>(
    open: Pin<&mut impl Future<Output = Result<Result<(), SourceError>, R>>>,
    cx: &mut Context<'_>,
) -> Poll<Opening> {
    let opened = open.poll(cx);
    opened.map(|opened| {
        let panicked = |_| Err(SourceError::failed("`open` panicked"));
        Opening::Opened(opened.unwrap_or_else(panicked))
    })
}
