//! Lanes, their transition table and the ready queue against naive models, with every invariant
//! checked after every step; and all orders of the steps of a striped intake.

mod lane;
mod ready;
mod turns;
