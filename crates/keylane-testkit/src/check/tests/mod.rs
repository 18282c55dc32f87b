//! The rules, on histories written by hand and on random ones.

mod planted;
mod spoilers;

mod fencing;
mod figures;
mod judge;
mod letters;
mod liveness;
mod model;
mod order;
mod settlement;
mod versions;
