//! An HTTP service that loses no order, and shows it: stored before it is accepted, handled in order for
//! each user, and shown on a console.
//!
//! ```text
//! cargo run --release --example orders                # shows itself, in half a minute
//! cargo run --release --example orders -- --serve     # the service, with `curl` lines to paste
//! cargo run --release --example orders -- --help
//! ```
//!
//! ```text
//!                    202 when it is durable
//!  POST /orders ──► inbox ──► dispatcher: a lane for each user ──► handler ──► ledger
//!                     │            │                                              (effects.log)
//!                     └────────────┴──► /console: lanes, why they wait, dead letters
//! ```
//!
//! Without arguments it starts itself once more, as a *worker* that serves. It sends the worker the orders
//! of a few thousand users over HTTP, kills it in the middle with SIGKILL, looks at what lies on the disk,
//! starts it again, and judges the ledger at the end: what was lost, what was done in the wrong order, and
//! what was started a second time.
//!
//! | to read | what is in it |
//! | --- | --- |
//! | `service.rs` | the whole of it in one piece: inbox, dispatcher, intake, and the way they end |
//! | `shop.rs` | the handler, and which of its effects may repeat |
//! | `ledger.rs` | effects that are applied once |
//! | `app.rs`, `refusal.rs` | the routes, and what is answered when an order is not taken |
//! | `figures.rs` | figures as JSON, for programs |
//! | `health.rs` | what a service manager asks: is it ready, is it live, and why not |
//! | `demo/` | the worker, the load, the kill, and the judge |

mod arguments;
mod service;

mod order;

mod shop;

mod ledger;

mod app;

mod guard;

mod health;

mod refusal;

mod figures;

mod demo;

mod say;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use arguments::{Arguments, Role};

type Failure = Box<dyn Error + Send + Sync>;

/// Exit status: 0; 1 if something was lost, reordered or repeated that must not be; 2 if it could not run.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
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
        Role::Serve(place) => service::serve(&place).await.map(|()| true),
        Role::Work(place) => service::work(&place).await.map(|()| true),
        Role::Show(show) => demo::show(&show).await,
    }
}
