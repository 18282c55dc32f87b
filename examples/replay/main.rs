//! Replays the history of a git repository, and shows that each path's changes came in order.
//!
//! ```text
//! cargo run --release --example replay                             # the repository it stands in
//! cargo run --release --example replay -- ~/src/linux --work 1ms   # another one, slower handlers
//! cargo run --release --example replay -- --all                    # four designs side by side
//! ```
//!
//! Each change of a path is an event: what stood there before, what stands there after. The path is
//! the key. The handler applies an event only where it fits, so the data itself shows any event that
//! overtakes another or runs beside it, and at the end the tree must be the one that git lists.
//! Look at the last two lines: no order breaks, and a state that is equal.
//!
//! `RUST_LOG=keylane=info` logs each attempt of the dispatcher on stderr, which makes it slower.
//!
//! Exit status: 0 if so, 1 if not, 2 if there was nothing to replay or it could not be read.

use std::process::ExitCode;

use clap::Parser;

mod arguments;
mod replay;

mod designs;
mod event;
mod git;
mod handler;
mod progress;
mod raw;
mod report;
mod state;

use arguments::Arguments;

#[tokio::main]
async fn main() -> ExitCode {
    examples::log_to_stderr("warn");
    match replay::run(&Arguments::parse(), &mut std::io::stdout()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            ExitCode::from(2)
        }
    }
}
