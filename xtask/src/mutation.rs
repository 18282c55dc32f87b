//! `cargo xtask mutation`: the steps of a soak that change the pure parts, one expression at a
//! time. A unit test must fail each time.

use crate::Error;
use crate::part::Part;
use crate::proof::{Run, Settings};
use crate::soak;

/// Change the pure parts, one expression at a time: a unit test must fail each time
///
/// cargo-mutants does it (installed below target/tools), in a copy of the workspace. Survivors must
/// be in xtask/survivors.txt, with a reason. The whole takes hours, so it is divided into parts,
/// which are the mutations of `cargo xtask soak`: the results are in target/soak/results.json, with
/// the hash of the tree. A part that has passed on this tree does not run again. So an interrupted
/// run goes on where it stopped.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this part: 1/3, 2/3 and 3/3 are all mutations. May be given several times
    #[arg(long, value_name = "K/N")]
    part: Vec<Part>,
    /// Also run parts that have passed on this tree
    #[arg(long)]
    again: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let steps = soak::mutations(&args.part);
    let steps: Vec<_> = steps.iter().collect();
    let mut run = Run::new(Settings {
        scale: "normal",
        seed: None,
        again: args.again,
    })?;
    run.run(&steps)?;
    run.conclude(&steps)
}
