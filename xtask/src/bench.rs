//! `cargo xtask bench`: shows whether keylane has become slower.

use crate::Error;
use crate::results::{Form, Save};
use crate::setup;
use crate::workspace::cargo;

/// Run the benches: criterion, and instruction counts under valgrind
///
/// The first run installs the runner of the instruction counts below target/tools. Arguments after
/// `--` go to `cargo bench -p benches`, for example `-- --bench dispatch`, and
/// `--save=instructions -- --bench instructions`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    save: Save,
    /// Arguments of `cargo bench`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let mut bench = cargo(["bench", "-p", "benches"]);
    bench.args(&args.cargo);
    if let Some(runner) = setup::instruction_counter()? {
        bench.env("GUNGRAUN_RUNNER", runner);
    }
    if args.save.run("bench", bench, Form::Text)?.success() {
        Ok(())
    } else {
        Err("a bench has failed".into())
    }
}
