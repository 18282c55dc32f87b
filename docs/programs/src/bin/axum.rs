//! An axum service whose requests run one at a time for each user, in the order of their arrival.

use std::convert::Infallible;
use std::env::var;

use axum::error_handling::HandleErrorLayer;
use axum::{Json, Router, extract::Request, http::StatusCode, routing::post};
use keylane_tower::{Error, KeyedLayer};
use serde::Deserialize;
use tower::ServiceBuilder;

#[derive(Deserialize)]
struct Order {
    cents: u64,
}

async fn order(Json(order): Json<Order>) -> String {
    format!("{} cents\n", order.cents)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    tracing_subscriber::fmt().init();
    // A request without the header has no key, and waits for no other one.
    let by_user = KeyedLayer::by_key(|request: &Request| request.headers().get("x-user").cloned());
    let busy = HandleErrorLayer::new(|error: Error<Infallible>| async move {
        (StatusCode::TOO_MANY_REQUESTS, error.to_string())
    });
    let app = Router::new()
        .route("/orders", post(order))
        .layer(ServiceBuilder::new().layer(busy).layer(by_user));

    let address = var("ADDRESS").unwrap_or("127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("post to http://{}/orders", listener.local_addr()?);
    let stop = async { _ = tokio::signal::ctrl_c().await };
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await
}
