//! An HTTP service that loses no order: `cargo run --release --example orders`.

use std::process::ExitCode;

fn main() -> ExitCode {
    orders::run()
}
