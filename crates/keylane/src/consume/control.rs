//! The state that an intake and its driver share.

use std::sync::OnceLock;

use keylane_metrics::Figures;
use keylane_rt::clock::Instant;
use keylane_rt::unwind::shielded;
use keylane_rt::{Mutex, lock, mpsc};
use tokio_util::sync::CancellationToken;

use super::hold::HoldWatch;
use super::report::{IntakeReport, IntakeState, IntakeStats};
use crate::health::{Health, HealthLimits, IntakeView};

/// What the user asks of the driver.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Pause,
    Resume,
    /// Take nothing in, finish what is here, and hand back at this time what is left.
    Stop(Option<Instant>),
}

#[derive(Debug)]
pub(super) struct Control {
    pub(super) commands: mpsc::UnboundedSender<Command>,
    /// The name of the source.
    pub(super) source: String,
    seen: Mutex<Seen>,
    figures: Figures<IntakeStats>,
    pub(super) hold: HoldWatch,
    /// Where its driver is registered: the id of the engine, and the number there. A watch keeps
    /// the engine, so that no other one has its id.
    pub(super) place: OnceLock<(usize, u32)>,
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Seen {
    stats: IntakeStats,
    report: Option<IntakeReport>,
    /// A panic outside the handlers has ended the intake.
    panicked: bool,
}

impl Control {
    pub(super) fn new(
        source: String,
        figures: Figures<IntakeStats>,
    ) -> (Self, mpsc::UnboundedReceiver<Command>) {
        let (commands, heard) = mpsc::unbounded_channel();
        let control = Self {
            commands,
            source,
            seen: Mutex::new(Seen::default()),
            figures,
            hold: HoldWatch::default(),
            place: OnceLock::new(),
            ended: CancellationToken::new(),
        };
        (control, heard)
    }

    pub(super) fn stats(&self) -> IntakeStats {
        let stats = lock(&self.seen).stats.clone();
        IntakeStats {
            hold: self.hold.ask().or(stats.hold),
            ..stats
        }
    }

    /// Whether it has ended, or finishes what is here.
    pub(super) fn is_stopping(&self) -> bool {
        let state = lock(&self.seen).stats.state;
        matches!(state, IntakeState::Stopping | IntakeState::Ended)
    }

    /// Whether it takes messages in, and why not.
    pub(super) fn health(&self, limits: &HealthLimits, now: Instant) -> Health {
        let seen = lock(&self.seen);
        let view = IntakeView {
            source: &self.source,
            stats: &seen.stats,
            panicked: seen.panicked,
        };
        view.verdict(limits, now.into())
    }

    pub(super) fn publish(&self, change: impl FnOnce(&mut IntakeStats)) {
        change(&mut lock(&self.seen).stats);
    }

    /// The intake has ended, and so many acks were not confirmed. What is still counted as held
    /// went back: no driver will settle it. `show` shows the last counters.
    pub(super) fn end(
        &self,
        show: impl FnOnce(&mut IntakeStats),
        unconfirmed: u64,
        panicked: bool,
    ) {
        let mut seen = lock(&self.seen);
        if seen.report.is_some() {
            return;
        }
        seen.panicked = panicked;
        let stats = &mut seen.stats;
        show(stats);
        stats.state = IntakeState::Ended;
        stats.given_back += stats.held as u64;
        (stats.held, stats.held_bytes, stats.aside) = (0, 0, 0);
        stats.acked -= unconfirmed;
        stats.given_back += unconfirmed;
        stats.unconfirmed = 0;
        stats.hold = None;
        seen.report = Some(IntakeReport {
            received: seen.stats.received,
            acked: seen.stats.acked,
            dead_lettered: seen.stats.dead_lettered,
            nacked: seen.stats.nacked,
            given_back: seen.stats.given_back,
            restarts: seen.stats.restarts,
        });
        drop(seen);
        self.hold.end();
        // The last figures stand before the report does.
        self.show();
        self.ended.cancel();
    }

    /// Publishes the counters as metrics, and returns whether they will change. A recorder is the
    /// user's code.
    pub(super) fn show(&self) -> bool {
        shielded(|| self.figures.show(|| self.stats()));
        !self.ended.is_cancelled()
    }

    pub(super) async fn ended(&self) -> IntakeReport {
        self.ended.cancelled().await;
        lock(&self.seen).report.clone().unwrap_or_default()
    }
}
