//! Lanes, their transition table and the ready queue against naive models, with every invariant
//! checked after every step.

mod lane;
mod ready;
