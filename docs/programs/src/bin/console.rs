//! An axum service with a page that shows its lanes: `http://127.0.0.1:3000/console`.

use std::env::var;
use std::net::SocketAddr;
use std::time::Duration;

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use keylane::{Dispatcher, OnExhausted};
use keylane_console::{Action, Console};
use serde::Deserialize;

#[derive(Clone, Deserialize)]
struct Order {
    user: String,
    cents: u64,
}

type Orders = Dispatcher<String, Order, (), &'static str>;

async fn bill(order: Order) -> Result<(), &'static str> {
    tokio::time::sleep(Duration::from_millis(order.cents)).await;
    match order.cents {
        0 => Err("an order of nothing"),
        _ => Ok(()),
    }
}

async fn accept(State(orders): State<Orders>, Json(order): Json<Order>) -> StatusCode {
    match orders.try_send(order) {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let orders = Dispatcher::builder(|order: &Order| order.user.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(bill)?;
    let console = Console::builder()
        .dispatcher("orders", &orders)
        .allow([Action::Resume, Action::Skip]) // without this it only shows
        .without_token() // on a machine of your own; elsewhere `token`
        .build()?;

    let app = Router::new()
        .route("/orders", post(accept))
        .with_state(orders.clone())
        .nest("/console", console.router());
    let address = var("ADDRESS").unwrap_or("127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("look at http://{}/console", listener.local_addr()?);
    let stop = async move {
        _ = tokio::signal::ctrl_c().await;
        console.close(); // its feeds are responses without an end
    };
    // The console must know who asks.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(stop)
        .await?;
    println!("{}", orders.drain().await);
    Ok(())
}
