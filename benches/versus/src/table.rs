//! Tables, for the terminal and as Markdown.

mod grid;
pub use grid::Table;

mod workloads;
pub use workloads::{
    contenders, details, disturbed, hot_keys, in_place, overviews, round_trips, settings,
};

mod costs;
pub use costs::{disciplines, fed, footprints, fronts, idle, pulls, rate_keys};

mod verdicts;
pub use verdicts::{against, bars};

mod cells;
