#![doc = include_str!("../README.md")]
// Nothing asks an empty lane, or a default one: what users see is in other crates.
#![allow(clippy::len_without_is_empty, clippy::new_without_default)]

mod rules;
pub use rules::{
    AtLimit, BatchRules, CoalesceRules, PlanRules, Rules, SequenceRules, Survivor, TICK, later,
};

mod item;
pub use item::Item;

mod gate;
pub use gate::{Gate, Opening};

mod lane;
pub use lane::plan::Sequencer;
pub use lane::{
    Backlog, Change, Decision, Due, Effects, Evicted, Few, Gap, Hold, Lane, Left, Next, Offered,
    Out, Rare, Stall, State, Store, Taken, Undecidable, WaitReason,
};

mod map;
pub use map::{Keep, LaneMap};

mod ready;
pub use ready::{CLASSES, Ranked, Ready, Recruit, Role, RunnerLimits, Take};

mod stripe;
pub use stripe::{Call, Stripe};

mod timers;
pub use timers::Timers;

mod gcra;
pub use gcra::Gcra;

mod sequence;
pub use sequence::{Mode, OnGap, Start};

#[cfg(keylane_shuttle)]
mod modelled;

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod model;
