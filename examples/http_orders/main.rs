//! An axum server that handles the orders of each user one at a time, in the order in which they came.
//!
//! ```text
//! cargo run -p http_orders -- --demo    # what there is to see, over real HTTP, in a second
//! cargo run -p http_orders              # the server, with `curl` lines to paste; Ctrl-C stops it
//! ```
//!
//! `RUST_LOG=keylane=info` logs each mail on stderr, and `RUST_LOG=debug` what the server does as well.
//!
//! Three layers do it (`app.rs`): lanes by the header `x-user`, time limits, and an answer for those for
//! whom there is no room. What has been ordered is confirmed by a mail, which is sent by a dispatcher when
//! the answer is out already (`mails.rs`). `/metrics` shows both, and the end says what became of the mails.

mod app;
mod client;
mod demo;
mod figures;
mod mails;
mod refusal;
mod shop;

use std::error::Error;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use figures::Figures;
use shop::Shop;

/// How long what runs may take to finish when the server stops.
const GRACE: Duration = Duration::from_secs(6);

/// Orders per user in order, behind an axum server
#[derive(Parser)]
struct Arguments {
    /// Where to listen on 127.0.0.1; 0 takes any free port
    #[arg(long, default_value_t = 0)]
    port: u16,

    /// Run it against itself, print what there is to see, and end
    #[arg(long)]
    demo: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(std::io::stderr)
        .init();
    // Before the dispatcher, which looks for the recorder when it is built.
    let figures = Figures::install()?;
    let mails = mails::mails()?;
    let lanes = app::lanes()?;
    let app = app::app(Shop::new(mails.clone()), lanes.clone(), figures);

    let listener = TcpListener::bind(("127.0.0.1", arguments.port)).await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        // It is told by a message or by the end of its sender.
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.into_future());

    println!("listening on http://{address}");
    let shown = tokio::select! {
        shown = demo::show(address, &lanes), if arguments.demo => shown,
        pressed = wait_for_ctrl_c(address, arguments.demo) => pressed.map_err(Into::into),
    };

    println!(
        "stopping: {} in lanes or running; those that wait are refused",
        lanes.len()
    );
    drop(stop);
    lanes.close();
    match timeout(GRACE, server).await {
        Ok(ended) => ended??,
        Err(_) => println!("some connections did not end in time"),
    }
    // Last: until here a request may have ordered a mail.
    let report = mails.drain().within(GRACE).await;
    println!("mails: {report}");
    shown
}

async fn wait_for_ctrl_c(address: SocketAddr, demo: bool) -> std::io::Result<()> {
    if !demo {
        print_lines(address);
    }
    tokio::signal::ctrl_c().await
}

fn print_lines(address: SocketAddr) {
    println!(
        r#"
Six orders of a slow user, and at the same time six of ann: hers are done in order, long before his.

  for n in 1 2 3 4 5 6; do
    curl -sw '\n' http://{address}/orders -H 'x-user: slow' --json '{{"item":"cake '$n'","takes_ms":2000}}' &
    curl -sw '\n' http://{address}/orders -H 'x-user: ann' --json '{{"item":"tea '$n'","takes_ms":300}}' &
    sleep 0.1
  done; wait

In which order they were handled, and the figures:

  curl -sw '\n' http://{address}/orders/ann
  curl -s http://{address}/metrics

Twelve at once fill a lane, and the last ones are told so:

  for n in $(seq 12); do
    curl -sw '\n' http://{address}/orders -H 'x-user: bob' --json '{{"item":"pie","takes_ms":500}}' &
  done; wait

Ctrl-C stops the server.
"#
    );
}
