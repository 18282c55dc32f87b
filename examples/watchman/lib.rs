//! One leader of three processes bills every account once a second, whatever happens to it.
//!
//! ```text
//! cargo run --release --example watchman                      # with a ZooKeeper of its own
//! cargo run --release --example watchman -- --store postgres  # with a PostgreSQL of its own
//! cargo run --release --example watchman -- --unfenced        # what goes wrong without the fence
//! ```
//!
//! ```text
//!  every second, for each account              one step of the store
//!  leader ──► its inbox, on disk ──► lanes ──► ┌ is this term still the last one?   ┐
//!                                              │ was the period before billed last? │
//!                                              └ the bill, and the period           ┘
//! ```
//!
//! The leader is killed, paused, cut off from the store, and resigns, in turn. At the end the bills
//! say whether each account was billed once for each second.
//!
//! # Why each process has an inbox of its own
//!
//! An embedded inbox is locked by the process that has it open. A paused process keeps its lock, so
//! a shared inbox would make the next leader wait for the end of the pause. So each process has its
//! own. What a leader had accepted when it was killed is still there when the process starts again,
//! and it is handled when that process leads again: by then others have billed it. The store knows
//! the last period of each account and refuses to bill one twice, and a new leader begins after
//! that period.
//!
//! | to read | what is in it |
//! | --- | --- |
//! | `career.rs` | the heart: take over, bill, hand over |
//! | `books/` | a bill, a period and a fence in one step, in each of the two stores |
//! | `worker.rs` | a process: a candidate with its inbox |
//! | `judge.rs` | whether each account was billed once for each period |
//! | `show.rs`, `course.rs`, `crew.rs` | the servers, the faults, the processes |
//! | `log.rs`, `story.rs`, `chart.rs`, `picture.rs` | who led when, in the terminal and as an SVG |

mod arguments;

mod books;

mod career;

mod chart;

mod course;

mod crew;

mod judge;

mod log;

mod picture;

mod plan;

mod show;

mod site;

mod story;

mod words;

mod worker;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use examples::{log_to_stderr, say};

use arguments::{Arguments, Role};

type Failure = Box<dyn Error + Send + Sync>;

/// Exit status: 0; 1 if an account was billed twice or skipped; 2 if it could not run.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    log_to_stderr("off");
    match started(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            say::error(&*error);
            ExitCode::from(2)
        }
    }
}

#[tokio::main]
async fn started(arguments: Arguments) -> Result<bool, Failure> {
    match arguments.role() {
        Role::Show(show) => show::show(&show).await,
        Role::Work => worker::work().await.map(|()| true),
    }
}
