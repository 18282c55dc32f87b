//! One slow user among many: who waits for it, in each of the four designs?
//!
//! ```text
//! cargo run --release --example four_designs
//! cargo run --release --example four_designs -- --lanes 8 --slow-ms 150 --out slow.svg
//! ```
//!
//! Twenty users send at times that are fixed beforehand, the same for each design. One of them needs 60 ms
//! for each message, the others 1 or 2 ms. A wait is counted from the time at which a message was *meant*
//! to be sent to the start of its handler, so a sender that is held up hides nothing.
//!
//! Prints a table, and the users who waited longest; writes a picture with a row for each user, dark
//! where it waited. Look at the third panel: users who do nothing wrong wait with the slow one, as their
//! keys happen to share its lane. A stripe from top to bottom is the machine itself, busy with something
//! else.
//!
//! So a task for each user is as good as keylane? Then 100,000 users come, send one message each, and are
//! silent. A second table and picture show what each design keeps of them: tasks, queues and memory.
//!
//! `RUST_LOG=keylane=info` logs each attempt of the dispatcher on stderr.
//!
//! Exit status: 0 if every message was handled once and in order, 1 if not, 2 if it could not be run.

use std::process::ExitCode;

use clap::Parser;

mod arguments;
mod experiment;
mod traffic;

mod crowd;
mod crowd_picture;
mod designs;
mod handler;
mod outcome;
mod picture;
mod table;

use arguments::Arguments;

#[tokio::main]
async fn main() -> ExitCode {
    examples::log_to_stderr("warn");
    match experiment::run(&Arguments::parse(), &mut std::io::stdout()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
