#![doc = include_str!("../README.md")]

// # How it works
//
//     static table of Rows ──► Figures ── increments ──► recorder of the process
//                                 ▲
//              stats of a thing ──┘ by a task, every 5 seconds, and once at the end of the thing
//
// Each crate has its metrics in one file, `metrics.rs` (`observe/names.rs` in `keylane`): names,
// and a table that says how each value is found in the statistics that the crate has anyway.
//
// **How is a metric named?**
// `keylane_`, the thing, what is measured, and the suffix of Prometheus: `_total`, `_seconds`,
// `_bytes`. The things are `source`, `inbox`, `spool`, `lease`, `leader` and `rate`; a dispatcher
// has none. What follows one thing through its life is a label, and never a key: `dispatcher`,
// `source`, `topic`, `partition`, `stream`, `inbox`, `spool`, `election`, `rate`.
//
// **Who publishes, and when?**
// The watchdog of a dispatcher, the task of a source's intake, of a spool, of an inbox and of
// leases, and a Kafka source with the status of its partitions. A candidate publishes each event
// when it happens, and a rate and a list after each call to their server. Nothing on the way of a
// message publishes, but the two histograms of a dispatcher.
//
// **Why increments, and not absolute values?**
// Two things may have the same labels: two inboxes, or a source that is consumed again after its
// intake has ended. A recorder has one counter and one gauge for them. With increments a counter is
// the sum over all of them, and never falls. A gauge is the sum over those that exist.
//
// **And what each of several workers is told of the whole?**
// The length of a list, or of a table, is set, and not added up: two workers of a process would
// show twice as much (`Row::shared`).
//
// **Who asks a server what waits there?**
// Nothing, where its answers say so anyway. Otherwise the owner of a stream, and the task that
// looks after the tables of an inbox, while there is a recorder (`Figures::is_published`). The
// owner of a stream asks also while something looks at its `StreamWatch`. A question that fails is
// no failure of the source.
//
// **Why are acks a counter only when they are confirmed?**
// If the source fails before, they are given back, and a counter must not fall.
//
// **Why is this crate there without the feature?**
// So that the crates above have no second version of their code. Without the feature `Figures` is
// empty, no task is spawned, and no statistics are taken.
//
// **What keeps the files and the code together?**
// `tests/files` reads each expression of the dashboard and of the alerts, the list in the README
// and a scrape, and compares them with the tables, in both directions. `promtool` runs a test for
// each alert.

mod metric;
pub use metric::{Kind, Metric};

mod label_names;
pub use label_names::LabelNames;

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
