//! What waits, per key: the lanes, the queue of those that may start, the timers of those that
//! wait for a retry. Nothing in here knows what a handler is.

mod lane;
pub(crate) use lane::{AtLimit, Lane, Next, Offered, Rest, State, Timer};

mod backlog;

mod sequencer;
pub(crate) use sequencer::{Came, Gap, Sequencer};

mod map;
pub(crate) use map::LaneMap;

mod ready;
pub(crate) use ready::{Limits, Ready, Recruit, Role, Take};

mod line;
pub(crate) use line::Ranked;

mod turns;
pub(crate) use turns::CLASSES;

mod pace;

mod timers;
pub(crate) use timers::Timers;

#[cfg(keylane_shuttle)]
mod modelled;

#[cfg(all(test, not(keylane_shuttle)))]
mod model;
