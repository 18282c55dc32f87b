#![doc = include_str!("../README.md")]

// # How it works
//
//     static table of Rows ──► Figures ── increments ──► recorder of the process
//                                 ▲
//              stats of a thing ──┘ by a task, every 5 seconds, and once at the end of the thing
//
// **Why increments, and not absolute values?**
// Two things may have the same labels: two inboxes, or a source that is consumed again after its
// intake has ended. A recorder has one counter and one gauge for them. With increments a counter is
// the sum over all of them, and never falls. A gauge is the sum over those that exist.
//
// **Why is this crate there without the feature?**
// So that the crates above have no second version of their code. Without the feature `Figures` is
// empty, no task is spawned, and no statistics are taken.

mod metric;
pub use metric::{Kind, Metric};

mod row;
pub use row::{Row, published};

mod labels;
pub use labels::Labels;

mod figures;
pub use figures::Figures;

mod timer;
pub use timer::{IfPublished, Timer};

mod repeat;
pub use repeat::{EVERY, repeat};
