//! One leader that bills, and who led when: `cargo run --release --example watchman`.

use std::process::ExitCode;

fn main() -> ExitCode {
    watchman::run()
}
