//! Orders in a Kafka topic, in order for each customer, over a joining and a killed consumer:
//! `cargo run --release -p kafka_orders -- --demo`. The README beside this file says more.

mod arguments;

mod show;

mod own;

mod worker;

mod member;

mod crew;

mod broker;

mod producer;

mod observer;

mod block;

mod order;

mod journal;

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
    let role = match Arguments::parse().role() {
        Ok(role) => role,
        Err(error) => error.exit(),
    };
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
        Role::Own(own) => own::consume(&own).await.map(|()| true),
        Role::Work => worker::work().await.map(|()| true),
    }
}
