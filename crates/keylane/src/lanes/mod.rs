//! What waits, per key: the lanes, the queue of those that may start, the timers of those that wait
//! for time. Nothing in here knows what a handler is, and what a lane decides is pure.

mod rules;
pub(crate) use rules::{
    AtLimit, BatchRules, CoalesceRules, PlanRules, Rules, SequenceRules, Survivor, TICK, later,
};

mod item;
pub(crate) use item::Item;

mod gate;
pub(crate) use gate::{Gate, Opening};

mod lane;
pub(crate) use lane::plan::Sequencer;
pub(crate) use lane::{
    Change, Decision, Due, Effects, Evicted, Few, Gap, Hold, Lane, Left, Next, Offered, Out, Stall,
    State, Store, Taken, Undecidable, WaitReason,
};

mod map;
pub(crate) use map::{Keep, LaneMap};

mod ready;
pub(crate) use ready::{CLASSES, Ranked, Ready, Recruit, Role, RunnerLimits, Take};

mod timers;
pub(crate) use timers::Timers;

#[cfg(keylane_shuttle)]
mod modelled;

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod model;
