//! Long runs that need not be one: each step's result is kept with the hash of the tree that it ran
//! on, and a step that has passed on this tree is not run again.

mod estimate;

mod step;

mod results;

mod perform;

mod report;

mod run;

pub(crate) use estimate::{Estimate, Origin};
pub(crate) use run::{Run, Settings};
pub(crate) use step::{Step, Work, choose};
