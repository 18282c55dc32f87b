//! Orders in a list and in a stream of Redis, in order for each customer, over workers that are killed and
//! paused: `cargo run --release -p redis_workers -- --demo`. The README beside this file says more.

mod arguments;

mod show;

mod block;

mod worker;

mod crew;

mod producer;

mod sink;

mod order;

mod judge;

mod stop;

mod say;
#[path = "../screen.rs"]
mod screen;

#[path = "../mounted.rs"]
mod mounted;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use arguments::{Arguments, Role};

type Failure = Box<dyn Error + Send + Sync>;

/// Exit status: 0; 1 if the proof does not hold; 2 if it could not run.
fn main() -> ExitCode {
    let role = Arguments::parse().role();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    match started(role) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            say::error(&*error);
            ExitCode::from(2)
        }
    }
}

#[tokio::main]
async fn started(role: Role) -> Result<bool, Failure> {
    match role {
        Role::Show(show) => show::show(&show).await,
        Role::Work => worker::work().await.map(|()| true),
    }
}
