//! The tables.

use crate::Table;
use crate::changes::Gaps;
use crate::load::{Extent, Load};
use crate::number::number;
use crate::samples::Samples;

/// What was measured, each in the order of [`Side::BOTH`](crate::side::Side::BOTH).
#[derive(Clone, Debug)]
pub struct Results {
    /// The times without a leader.
    pub gaps: Gaps,
    /// What many candidates cost.
    pub loads: [Load; 2],
    /// How many those were.
    pub extent: Extent,
}

/// Returns the tables.
pub fn tables(results: &Results) -> Vec<Table> {
    vec![gaps(&results.gaps), steps(&results.gaps), load(results)]
}

fn gaps(gaps: &Gaps) -> Table {
    let about = "From the request to leave, or from SIGKILL, to the start of the successor in \
                 another process.";
    let mut table = new("Without a leader, ms", about);
    let resigned = |share| gaps.resigned.each_ref().map(|side| side.below(share));
    let killed = |share| gaps.killed.each_ref().map(|side| side.below(share));
    let times = |samples: &[Samples; 2]| samples[0].count();
    let of = times(&gaps.resigned);
    push(
        &mut table,
        &format!("resigned, median of {of}"),
        resigned(0.5),
    );
    push(&mut table, "resigned, p99", resigned(0.99));
    let of = times(&gaps.killed);
    push(&mut table, &format!("killed, median of {of}"), killed(0.5));
    push(&mut table, "killed, longest", killed(1.0));
    table
}

fn steps(gaps: &Gaps) -> Table {
    let about = "When the leader resigns.";
    let mut table = Table::new(
        "The parts of a change of keylane, ms",
        about,
        &["", "median", "p99"],
    );
    let names = [
        "until the term is released",
        "until the successor is elected",
        "until it leads",
    ];
    for (name, samples) in names.into_iter().zip(&gaps.steps) {
        let figures = [0.5, 0.99].map(|share| number(samples.below(share)));
        table.push([name.to_owned()].into_iter().chain(figures));
    }
    table
}

fn load(results: &Results) -> Table {
    let about = format!(
        "One process with one leader and {} candidates that wait. Of a change: without what comes \
         at rest.",
        results.extent.waiting
    );
    let mut table = new("Load on the server", &about);
    let mut add = |what, figure: fn(&Load) -> f64| {
        push(&mut table, what, results.loads.each_ref().map(figure));
    };
    add("at rest: packets a second", |load| load.rest);
    add("at rest: transactions a second", |load| load.rest_writes);
    add("a change: packets", |load| load.change);
    add("a change: transactions", |load| load.change_writes);
    add("a change: watchers that fire", |load| load.fired);
    table
}

fn new(title: &str, about: &str) -> Table {
    Table::new(
        title,
        about,
        &["", "keylane", "Curator", "keylane / Curator"],
    )
}

fn push(table: &mut Table, what: &str, [ours, theirs]: [f64; 2]) {
    let ratio = match theirs > 0.0 {
        true => number(ours / theirs),
        false => String::new(),
    };
    table.push([what.to_owned(), number(ours), number(theirs), ratio]);
}
