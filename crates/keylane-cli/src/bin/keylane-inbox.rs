//! The name that `keylane inbox` had before.

use std::process::ExitCode;

fn main() -> ExitCode {
    keylane_cli::main_by_the_old_name()
}
