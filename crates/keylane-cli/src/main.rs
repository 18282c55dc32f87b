//! The program `keylane`.

use std::process::ExitCode;

fn main() -> ExitCode {
    keylane_cli::main()
}
