//! Transfers between accounts, booked once: `cargo run --release --example ledger`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ledger::run()
}
