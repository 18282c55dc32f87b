//! `cargo xtask versus`: keylane beside its rivals.

use crate::Error;
use crate::process;
use crate::workspace::cargo;

/// Compare keylane with its rivals in one run (results in target/versus)
///
/// The rivals are a workspace of their own, built on first use. Everything after `--` goes to the
/// comparison, for example `-- --quick` or `-- --help`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// For the comparison
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    versus: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let mut versus = cargo([
        "run",
        "--release",
        "--manifest-path=benches/versus/Cargo.toml",
        "--",
    ]);
    versus.args(&args.versus);
    if process::run(versus, None)?.success() {
        Ok(())
    } else {
        Err("the comparison has failed".into())
    }
}
