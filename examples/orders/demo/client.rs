//! A small HTTP client.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client as Connections;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::timeout;

use crate::Failure;
use crate::order::Order;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Letters that are redriven by one request.
const AT_ONCE: usize = 1_000;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    connections: Connections<HttpConnector, Body>,
    address: SocketAddr,
}

/// What the demo reads of the figures.
#[derive(Debug, Deserialize)]
pub(crate) struct Stats {
    pub(crate) waiting: u64,
    pub(crate) dead_letters: u64,
}

/// What the demo reads of a dead letter.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) sequence: u64,
    pub(crate) id: String,
    pub(crate) attempts: u32,
}

/// The console's answer to a question for letters.
#[derive(Debug, Deserialize)]
struct Page {
    letters: Vec<Row>,
    /// Behind this one there are more.
    next: Option<String>,
}

/// A letter on the console.
#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    attempts: u32,
    payload: Payload,
}

#[derive(Debug, Deserialize)]
struct Payload {
    shown: String,
}

impl TryFrom<Row> for Letter {
    type Error = Failure;

    fn try_from(row: Row) -> Result<Self, Failure> {
        let order = Order::from_payload(row.payload.shown.as_bytes())?;
        Ok(Self {
            sequence: row.id.parse()?,
            id: order.id,
            attempts: row.attempts,
        })
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            connections: Connections::builder(TokioExecutor::new()).build(connector),
            address,
        }
    }

    /// Orders something.
    pub(crate) async fn order(&self, order: &Order) -> Result<(StatusCode, String), Failure> {
        let body = serde_json::to_string(order)?;
        self.ask(Method::POST, "/orders", Body::from(body)).await
    }

    pub(crate) async fn stats(&self) -> Result<Stats, Failure> {
        self.get("/stats").await
    }

    /// All dead letters.
    pub(crate) async fn letters(&self) -> Result<Vec<Letter>, Failure> {
        let mut letters = Vec::new();
        let mut after = "0".to_owned();
        loop {
            let path = format!("/console/letters?name=orders&after={after}");
            let page: Page = self.get(&path).await?;
            for row in page.letters {
                letters.push(row.try_into()?);
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(letters),
            }
        }
    }

    pub(crate) async fn redrive(&self, sequences: &[u64]) -> Result<(), Failure> {
        let path = "/console/letters/act";
        for some in sequences.chunks(AT_ONCE) {
            let ids: Vec<_> = some.iter().map(ToString::to_string).collect();
            let act = json!({ "name": "orders", "action": "redrive_letters", "ids": ids });
            let answer = self.ask(Method::POST, path, act.to_string().into());
            let (status, body) = answer.await?;
            if !status.is_success() {
                return Err(format!("{path}: {status}: {body}").into());
            }
        }
        Ok(())
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let (status, body) = self.ask(Method::GET, path, Body::empty()).await?;
        if !status.is_success() {
            return Err(format!("{path}: {status}: {body}").into());
        }
        Ok(serde_json::from_str(&body)?)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Body,
    ) -> Result<(StatusCode, String), Failure> {
        let here = format!("http://{}", self.address);
        let request = Request::builder()
            .method(method)
            .uri(format!("{here}{path}"))
            .header("content-type", "application/json")
            .header("origin", here)
            .header("x-keylane-console", "1")
            .body(body)?;
        let answer = async {
            let response = self.connections.request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok((status, String::from_utf8(body.into())?))
        };
        let answered = timeout(PATIENCE, answer).await;
        answered.unwrap_or_else(|_| Err(format!("{path}: no answer in time").into()))
    }
}
