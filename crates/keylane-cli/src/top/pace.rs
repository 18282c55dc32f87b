//! When the screen is drawn. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The screen is not drawn more often.
const PAUSE: Duration = Duration::from_millis(200);

/// The pace of the screen.
#[derive(Debug)]
pub(super) struct Pace {
    drawn: Option<Instant>,
    is_old: bool,
}

impl Pace {
    /// A screen that was never drawn.
    pub(super) fn new() -> Self {
        Self {
            drawn: None,
            is_old: true,
        }
    }

    /// Something has changed.
    pub(super) fn changed(&mut self) {
        self.is_old = true;
    }

    /// The screen was drawn.
    pub(super) fn drawn(&mut self, now: Instant) {
        (self.drawn, self.is_old) = (Some(now), false);
    }

    /// When it is to be drawn; `None` if it shows what there is.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let due = self.drawn.map_or(now, |drawn| drawn + PAUSE);
        self.is_old.then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_drawn_five_times_a_second_at_most() {
        let start = Instant::now();
        let (mut pace, mut draws) = (Pace::new(), 0);
        // Something changes each millisecond, for a second.
        for ms in 0..1_000 {
            let now = start + Duration::from_millis(ms);
            pace.changed();
            if pace.due(now).is_some_and(|due| due <= now) {
                pace.drawn(now);
                draws += 1;
            }
        }
        assert_eq!(draws, 5);
        // What has changed last is drawn, and then there is nothing to draw.
        let now = start + Duration::from_secs(1);
        assert_eq!(pace.due(now), Some(now));
        pace.drawn(now);
        assert_eq!(pace.due(now + PAUSE), None);
    }
}
