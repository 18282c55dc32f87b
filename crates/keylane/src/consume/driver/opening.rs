//! Opening the source, and opening it again after a failure.

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use keylane_rt::clock::{self, Alarm, Instant};
use keylane_rt::unwind::dropped;
use keylane_source::{Source, SourceError};

use super::super::control::Command;
use super::super::held::GenerationState;
use super::super::revocation::SWEEP;
use super::call::{Trouble, alarm_after, later};
use super::revoking::end_what_is_not_held;
use super::state::{Driver, Phase};
use crate::engine::Revoked;
use crate::watching::SourceEvent;

/// The first pause before a source that failed is opened again.
const PAUSE: Duration = Duration::from_millis(100);

/// What became of a call of [`Source::open`].
enum Opened {
    Returned(Result<(), SourceError>),
    Late,
    /// It was dropped: the intake stops.
    Stop(Option<Instant>),
}

impl<K, M, O, E, S> Driver<K, M, O, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    S: Source<Message = M>,
{
    /// Opens the source if it is time.
    pub(super) async fn open_if_due(&mut self) {
        let Phase::Opening(at) = self.phase else {
            return;
        };
        if self.inlet.is_closed() {
            return self.stop_at(Some(clock::now()));
        }
        if at > clock::now() {
            return;
        }
        let opened = {
            let mut alarm = alarm_after(self.settings.stall_after);
            let mut look = Alarm::new(later(clock::now(), SWEEP));
            let mut open = pin!(AssertUnwindSafe(self.source.open()).catch_unwind());
            let (commands, paused) = (&mut self.commands, &mut self.paused);
            let dispatcher = self.inlet.dispatcher.clone();
            let (held, guard) = (&mut self.held, self.guard.as_deref());
            let source = self.registration.source;
            poll_fn(|cx| {
                // A stop does not wait for a source that does not answer.
                while let Poll::Ready(Some(command)) = commands.poll_recv(cx) {
                    match command {
                        Command::Pause => *paused = true,
                        Command::Resume => *paused = false,
                        Command::Stop(at) => return Poll::Ready(Opened::Stop(at)),
                    }
                }
                match open.as_mut().poll(cx) {
                    Poll::Ready(Ok(opened)) => return Poll::Ready(Opened::Returned(opened)),
                    Poll::Ready(Err(_)) => {
                        let error = SourceError::failed("`open` panicked");
                        return Poll::Ready(Opened::Returned(Err(error)));
                    }
                    Poll::Pending => {}
                }
                // Neither does a dispatcher that is closed, or an attempt that is to end.
                while look.poll(cx).is_ready() {
                    if dispatcher.is_closed() {
                        return Poll::Ready(Opened::Stop(Some(clock::now())));
                    }
                    end_what_is_not_held(held, guard, &dispatcher.engine.sources, source);
                    look.reset(later(clock::now(), SWEEP));
                }
                match &mut alarm {
                    Some(alarm) => alarm.poll(cx).map(|()| Opened::Late),
                    None => Poll::Pending,
                }
            })
            .await
        };
        let now = clock::now();
        self.heard_at = now;
        match opened {
            Opened::Returned(Ok(())) => {
                self.phase = Phase::Running;
                if self.failures > 0 {
                    tracing::info!(
                        target: "keylane",
                        source = %self.name,
                        "the source is open again"
                    );
                }
                if self.parts.forget() {
                    self.publish(|stats| stats.failed_parts.clear());
                }
                self.publish_state();
                self.notify(SourceEvent::Opened);
            }
            Opened::Returned(Err(error)) => {
                self.report_failure(&error.to_string());
                self.open_later();
            }
            Opened::Late => {
                let lasted = self.settings.stall_after;
                self.notify(SourceEvent::Stalled { lasted });
                self.report_failure("`open` did not return in time");
                self.open_later();
            }
            Opened::Stop(at) => self.stop_at(at),
        }
    }

    /// Opens the source after a pause that grows with each failure in a row.
    fn open_later(&mut self) {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let pause = PAUSE
            .saturating_mul(factor)
            .min(self.settings.longest_pause);
        self.failures = self.failures.saturating_add(1);
        self.phase = Phase::Opening(later(clock::now(), pause));
    }

    /// The source has failed: every generation of it is over, and it is opened again.
    pub(super) fn restart(&mut self, trouble: Trouble) {
        if let Trouble::Late(lasted) = trouble {
            self.notify(SourceEvent::Stalled { lasted });
        }
        self.report_failure(&trouble.to_string());
        let handed_over = self.deliveries.len() as u64;
        dropped(self.deliveries.take());
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        self.is_unconfirmed = false;
        self.publish(|stats| {
            stats.received += handed_over;
            stats.given_back += handed_over + unconfirmed;
            stats.acked -= unconfirmed;
            stats.restarts += 1;
        });
        for (_, held) in self.held.iter_mut() {
            held.standing = GenerationState::Over;
        }
        for revocation in &mut self.revocations {
            revocation.is_told = false;
        }
        self.begin_revocation(None, false, Revoked::Unstarted);
        if let Phase::Stopping { is_open, .. } = &mut self.phase {
            *is_open = false;
        } else {
            self.open_later();
            self.publish_state();
        }
    }
}
