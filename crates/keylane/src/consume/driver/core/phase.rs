//! How far the driver is.

use keylane_rt::clock::Instant;

use super::super::super::report::IntakeState;

/// How far the driver is. Its functions are the only transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Phase {
    /// The source is not open, and is opened at this time.
    Waiting { open_at: Instant, flow: Flow },
    /// A call of `open` is under way.
    Opening(Flow),
    /// The source is open, and messages come in.
    Running(Flow),
    /// Nothing more comes in. What is here settles.
    Stopping { link: Link, unstarted: Unstarted },
    /// Nothing is left: the last acks are confirmed, and the source is closed.
    Closing(Link),
}

/// Whether the user lets messages in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Flow {
    On,
    Paused,
}

/// What the source is to a driver that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Link {
    /// It is open, and may have news of its generations.
    Open,
    /// It is open and has said that nothing more comes.
    AtEnd,
    /// It has failed or was never open. It is not opened again.
    Closed,
}

/// What becomes of messages that have not started when the driver stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Unstarted {
    Stay,
    GoBackAt(Instant),
    WentBack,
}

impl Phase {
    /// Whether the source takes calls.
    pub(in super::super) fn is_open(self) -> bool {
        match self {
            Self::Waiting { .. } | Self::Opening(_) => false,
            Self::Running(_) => true,
            Self::Stopping { link, .. } | Self::Closing(link) => link != Link::Closed,
        }
    }

    /// Whether the source is asked for news. While we stop as well: a generation may end.
    pub(super) fn receives(self) -> bool {
        match self {
            Self::Running(_) => true,
            Self::Stopping { link, .. } => link == Link::Open,
            Self::Waiting { .. } | Self::Opening(_) | Self::Closing(_) => false,
        }
    }

    pub(in super::super) fn is_opening(self) -> bool {
        matches!(self, Self::Opening(_))
    }

    pub(super) fn is_running(self) -> bool {
        matches!(self, Self::Running(_))
    }

    pub(super) fn is_paused(self) -> bool {
        match self {
            Self::Waiting { flow, .. } | Self::Opening(flow) | Self::Running(flow) => {
                flow == Flow::Paused
            }
            Self::Stopping { .. } | Self::Closing(_) => false,
        }
    }

    /// Whether the driver stops: nothing goes into the lanes.
    pub(in super::super) fn stops(self) -> bool {
        matches!(self, Self::Stopping { .. } | Self::Closing(_))
    }

    pub(in super::super) fn is_closing(self) -> bool {
        matches!(self, Self::Closing(_))
    }

    /// Whether nothing starts any more that has not.
    pub(super) fn went_back(self) -> bool {
        match self {
            Self::Stopping { unstarted, .. } => unstarted == Unstarted::WentBack,
            Self::Closing(_) => true,
            Self::Waiting { .. } | Self::Opening(_) | Self::Running(_) => false,
        }
    }

    pub(super) fn state(self) -> IntakeState {
        match self {
            Self::Waiting { .. } | Self::Opening(_) => IntakeState::Opening,
            Self::Running(Flow::On) => IntakeState::Running,
            Self::Running(Flow::Paused) => IntakeState::Paused,
            Self::Stopping { .. } | Self::Closing(_) => IntakeState::Stopping,
        }
    }

    /// When the phase changes by the clock.
    pub(super) fn wake_at(self) -> Option<Instant> {
        match self {
            Self::Waiting { open_at, .. } => Some(open_at),
            Self::Stopping {
                unstarted: Unstarted::GoBackAt(at),
                ..
            } => Some(at),
            _ => None,
        }
    }

    pub(super) fn flow(&mut self, to: Flow) {
        match self {
            Self::Waiting { flow, .. } | Self::Opening(flow) | Self::Running(flow) => *flow = to,
            Self::Stopping { .. } | Self::Closing(_) => {}
        }
    }

    /// It is time to open the source. True: it is to be opened.
    #[must_use]
    pub(super) fn opens(&mut self, now: Instant) -> bool {
        match *self {
            Self::Waiting { open_at, flow } if open_at <= now => {
                *self = Self::Opening(flow);
                true
            }
            _ => false,
        }
    }

    pub(super) fn opened(&mut self) {
        if let Self::Opening(flow) = *self {
            *self = Self::Running(flow);
        }
    }

    /// The source has failed, and is opened again at this time. Not if the driver stops.
    pub(super) fn failed(&mut self, open_at: Instant) {
        match self {
            Self::Waiting { flow, .. } | Self::Opening(flow) | Self::Running(flow) => {
                let flow = *flow;
                *self = Self::Waiting { open_at, flow };
            }
            Self::Stopping { link, .. } | Self::Closing(link) => *link = Link::Closed,
        }
    }

    /// Nothing more is taken in, and what has not started goes back at this time. The earliest
    /// counts. True: the driver did not stop before.
    pub(super) fn stop(&mut self, at: Option<Instant>) -> bool {
        match self {
            Self::Waiting { .. } | Self::Opening(_) | Self::Running(_) => {
                let link = match self.is_open() {
                    true => Link::Open,
                    false => Link::Closed,
                };
                let unstarted = at.map_or(Unstarted::Stay, Unstarted::GoBackAt);
                *self = Self::Stopping { link, unstarted };
                true
            }
            Self::Stopping { unstarted, .. } => {
                *unstarted = match (*unstarted, at) {
                    (Unstarted::Stay, Some(at)) => Unstarted::GoBackAt(at),
                    (Unstarted::GoBackAt(before), Some(at)) => Unstarted::GoBackAt(before.min(at)),
                    (before, _) => before,
                };
                false
            }
            Self::Closing(_) => false,
        }
    }

    /// The source has said that it is at its end, and the driver stops.
    pub(super) fn source_ended(&mut self) {
        if let Self::Stopping { link, .. } = self
            && *link == Link::Open
        {
            *link = Link::AtEnd;
        }
    }

    /// What has not started goes back if it is time. True: it goes back now.
    #[must_use]
    pub(super) fn hands_back(&mut self, now: Instant) -> bool {
        match self {
            Self::Stopping { unstarted, .. } => match *unstarted {
                Unstarted::GoBackAt(at) if at <= now => {
                    *unstarted = Unstarted::WentBack;
                    true
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Nothing is left.
    pub(super) fn finish(&mut self) {
        let link = match *self {
            Self::Waiting { .. } | Self::Opening(_) => Link::Closed,
            Self::Running(_) => Link::Open,
            Self::Stopping { link, .. } | Self::Closing(link) => link,
        };
        *self = Self::Closing(link);
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What each event makes of each phase. `-`: the phase stays.
    const TABLE: &str = include_str!("phases.txt");

    /// A phase in a word or two. Whether it is paused is not shown.
    fn name(phase: Phase) -> String {
        match phase {
            Phase::Waiting { .. } => "Waiting".to_owned(),
            Phase::Opening(_) => "Opening".to_owned(),
            Phase::Running(_) => "Running".to_owned(),
            Phase::Stopping { link, unstarted } => {
                let unstarted = match unstarted {
                    Unstarted::Stay => "Stay",
                    Unstarted::GoBackAt(_) => "GoBack",
                    Unstarted::WentBack => "WentBack",
                };
                format!("{link:?}+{unstarted}")
            }
            Phase::Closing(link) => format!("Closing+{link:?}"),
        }
    }

    fn phases(now: Instant) -> Vec<Phase> {
        let flow = Flow::On;
        let open_at = now;
        let begin = [
            Phase::Waiting { open_at, flow },
            Phase::Opening(flow),
            Phase::Running(flow),
        ];
        let links = [Link::Open, Link::AtEnd, Link::Closed];
        let unstarted = [
            Unstarted::Stay,
            Unstarted::GoBackAt(now),
            Unstarted::WentBack,
        ];
        let stopping = links
            .into_iter()
            .flat_map(|link| unstarted.map(|unstarted| Phase::Stopping { link, unstarted }));
        let closing = links.map(Phase::Closing);
        begin.into_iter().chain(stopping).chain(closing).collect()
    }

    #[test]
    fn the_table_of_transitions_is_the_committed_one() {
        type Event = fn(&mut Phase, Instant);
        let events: [(&str, Event); 8] = [
            ("opens", |phase, now| _ = phase.opens(now)),
            ("opened", |phase, _| phase.opened()),
            ("failed", |phase, now| phase.failed(now)),
            ("stop", |phase, _| _ = phase.stop(None)),
            ("stop at", |phase, now| _ = phase.stop(Some(now))),
            ("at end", |phase, _| phase.source_ended()),
            ("hand back", |phase, now| _ = phase.hands_back(now)),
            ("finish", |phase, _| phase.finish()),
        ];
        let now = Instant::now();
        let mut table = format!("{:<16}", "phase");
        for (event, _) in &events {
            table += &format!(" {event:<15}");
        }
        for before in phases(now) {
            table += &format!("\n{:<16}", name(before));
            for (_, event) in &events {
                let mut after = before;
                event(&mut after, now);
                let after = if after == before {
                    "-".to_owned()
                } else {
                    name(after)
                };
                table += &format!(" {after:<15}");
            }
        }
        let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
        let table = lines.join("\n") + "\n";
        assert_eq!(
            table, TABLE,
            "if this is meant, commit as phases.txt:\n{table}"
        );
    }

    #[test]
    fn a_pause_lasts_until_the_end_of_the_pause() {
        let now = Instant::now();
        let open_at = now;
        let mut phase = Phase::Waiting {
            open_at,
            flow: Flow::On,
        };
        phase.flow(Flow::Paused);
        assert!(phase.opens(now));
        phase.opened();
        assert_eq!(phase.state(), IntakeState::Paused);
        phase.failed(now + Duration::from_secs(1));
        assert!(!phase.opens(now));
        assert!(phase.opens(now + Duration::from_secs(1)));
        phase.opened();
        phase.flow(Flow::On);
        assert_eq!(phase.state(), IntakeState::Running);
    }
}
