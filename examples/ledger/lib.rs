//! Transfers between accounts: in order for each account, and each booked once, whichever process dies.
//!
//! ```text
//! cargo run --release --example ledger                          # with a PostgreSQL of its own
//! cargo run --release --example ledger -- --url postgres://…    # with yours
//! cargo run --release --example ledger -- --apart               # what goes wrong without the transaction
//! ```
//!
//! ```text
//!  transfers ──► inbox in PostgreSQL ──► three worker processes: a lane for each account
//!                        ▲                         │
//!                        │                 ┌───────┴─── one transaction ─────────────────┐
//!                        └─────────────────┤ credit message, booking, balance, done-mark │
//!                                          └─────────────────────────────────────────────┘
//! ```
//!
//! It starts itself three more times, as *workers*. One is killed with SIGKILL in the middle, and one is
//! paused for longer than its claims last, so that others have its accounts when it goes on. One
//! answer in 100 to a commit is thrown away, as a network does. At the end the books are compared with the
//! same transfers, applied one by one.
//!
//! | to read | what is in it |
//! | --- | --- |
//! | `book.rs` | the heart: effects and done-mark in one transaction |
//! | `worker.rs` | a worker: a source, a dispatcher, an end in order |
//! | `feed.rs` | transfers that are accepted in a transaction |
//! | `plan.rs`, `judge.rs` | the transfers, and what must come of them |
//! | `show.rs`, `crew.rs`, `watch.rs` | the processes, the kill, the pause, and what is seen of them |

mod arguments;

mod show;

mod book;

mod transfer;

mod worker;

mod feed;

mod place;

mod plan;

mod judge;

mod crew;

mod watch;

mod progress;

mod money;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use examples::say;
use tracing_subscriber::EnvFilter;

use arguments::{Arguments, Role};

type Failure = Box<dyn Error + Send + Sync>;

/// Exit status: 0; 1 if the books do not balance; 2 if it could not run.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
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
