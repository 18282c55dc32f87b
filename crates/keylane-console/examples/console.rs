//! A console with something to see: `cargo run -p keylane-console --example console`. With a number
//! behind `--` it ends by itself after so many seconds.
//!
//! Orders of some hundred users. Some users are slow, one user's orders fail and are tried again,
//! and one user's lane is halted. All actions are allowed: resume it, skip its first order, or
//! replace it. Payments come from an inbox, and some of them become dead letters: redrive them. The
//! letters of a list or a stream of Redis are shown in the same way: give `ListLetters` or
//! `StreamLetters` of `keylane-redis` to `letters`, with the feature `redis`.

use std::time::Duration;

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_console::{Action, Console, View};
use keylane_inbox::Inbox;
use tokio::net::TcpListener;

/// An order of a user; it is handled for so long.
#[derive(Clone)]
struct Order {
    user: String,
    takes: Duration,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let orders = Dispatcher::builder(|order: &Order| order.user.clone())
        .retry(Retry::exponential(Duration::from_secs(1)).max_attempts(4))
        .on_exhausted(OnExhausted::Halt)
        .spawn(async |order: Order| {
            tokio::time::sleep(order.takes).await;
            match &*order.user {
                "declined" => Err("the bank has declined it"),
                _ => Ok(()),
            }
        })?;

    // An order that an operator types: how many milliseconds, and the user.
    let view = View::of_keys().decode(|text: &str| {
        let (takes, user) = text.split_once(' ').ok_or("write `20 declined`")?;
        let takes = takes
            .parse()
            .map_err(|_| "the milliseconds are no number")?;
        Ok::<_, &str>(Order {
            user: user.to_owned(),
            takes: Duration::from_millis(takes),
        })
    });

    let directory = tempfile::tempdir()?;
    let inbox = Inbox::open(directory.path().join("payments")).await?;
    let payments = Dispatcher::key_by_opt(|payment: &RawMessage| payment.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn(
            async |payment: RawMessage| match payment.payload.ends_with(b"0}") {
                true => Err("the bank does not answer"),
                false => Ok(()),
            },
        )?;
    let intake = payments.consume(inbox.source())?;

    let console = Console::builder()
        .dispatcher_with("orders", &orders, view)
        .dispatcher("payments", &payments)
        .intake("payments", &intake)
        .letters("payments", inbox.letters())
        .allow(Action::ALL)
        .without_token() // no proxy leads to a port that is free by chance
        .build()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!(
        "look at http://{}/ and stop with Ctrl-C",
        listener.local_addr()?
    );

    let shop = tokio::spawn(async move {
        for n in 0_u64.. {
            let user = match n % 100 {
                0 => "declined".to_owned(),
                1..=3 => format!("slow-{}", n % 3),
                _ => format!("user-{}", n * 7 % 300),
            };
            let takes = if user.starts_with("slow") {
                2_000
            } else {
                n % 40
            };
            let order = Order {
                user,
                takes: Duration::from_millis(takes),
            };
            if orders.send(order).await.is_err() {
                break;
            }
            if n % 50 == 0 {
                let payment = format!("{{\"cents\":{n}}}");
                let key = format!("user-{}", n / 50 % 7);
                if inbox.accept(key, payment).await.is_err() {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let seconds = match std::env::args().nth(1) {
        Some(seconds) => Some(seconds.parse()?),
        None => None,
    };
    let ends = async {
        match seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        served = console.serve(listener) => served?,
        () = ends => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    shop.abort();
    Ok(())
}
