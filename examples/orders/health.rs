//! What a service manager asks: `/health/ready` and `/health/live`, with 503 and the reasons if it is not.

use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use keylane::watching::Health;
use serde::Serialize;

/// The answer to both.
#[derive(Debug, Serialize)]
struct Answer {
    ready: bool,
    live: bool,
    /// Each says what to do.
    reasons: Vec<String>,
}

impl From<Health> for Answer {
    fn from(health: Health) -> Self {
        Self {
            ready: health.ready,
            live: health.live,
            reasons: health.reasons.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The routes. One that is not ready gets no more requests, and one that is not live is started again.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>(
    health: impl Fn() -> Health + Clone + Send + Sync + 'static,
) -> Router<S> {
    let ready = health.clone();
    let answer = |works: bool, health: Health| {
        let status = match works {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, Json(Answer::from(health)))
    };
    let ready = async move || {
        let health = ready();
        answer(health.ready, health)
    };
    let live = async move || {
        let health = health();
        answer(health.live, health)
    };
    Router::new()
        .route("/health/ready", get(ready))
        .route("/health/live", get(live))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use keylane::Dispatcher;
    use keylane::watching::HealthLimits;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Asks over HTTP.
    async fn ask(address: SocketAddr, path: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    #[tokio::test]
    async fn a_service_that_cannot_work_says_why_with_503() {
        let orders = Dispatcher::builder(|order: &u64| *order)
            .name("orders")
            .capacity(1)
            .spawn(|_: u64| async move { std::future::pending::<Result<(), String>>().await })
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let watched = orders.clone();
        let at_once = HealthLimits::new().full(Duration::ZERO);
        let app = routes(move || Health::of([watched.health_within(&at_once)]));
        tokio::spawn(async move { axum::serve(listener, app).await });

        let well = json!({ "ready": true, "live": true, "reasons": [] });
        for path in ["/health/ready", "/health/live"] {
            assert_eq!(ask(address, path).await, (200, well.clone()), "{path}");
        }

        orders.send(1).await.unwrap();
        let (status, answer) = ask(address, "/health/ready").await;
        assert_eq!(status, 503);
        let reason = answer["reasons"][0].as_str().unwrap();
        assert!(
            reason.starts_with("dispatcher `orders` is full"),
            "{answer}"
        );
        let (status, live) = ask(address, "/health/live").await;
        assert_eq!((status, &live["live"]), (200, &json!(true)));

        orders.abort().await;
        let (status, answer) = ask(address, "/health/ready").await;
        let reason = "dispatcher `orders` is closed: start another one to take messages";
        let closed = json!({ "ready": false, "live": true, "reasons": [reason] });
        assert_eq!((status, answer), (503, closed));
        assert_eq!(ask(address, "/health/live").await.0, 200);
    }
}
