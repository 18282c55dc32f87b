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

#[derive(Clone, Debug)]
pub(crate) struct Client {
    connections: Connections<HttpConnector, Body>,
    address: SocketAddr,
}

/// What the demo reads of the state.
#[derive(Debug, Deserialize)]
pub(crate) struct State {
    pub(crate) waiting: u64,
    pub(crate) dead_letters: u64,
}

/// What the demo reads of a dead letter.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Letter {
    pub(crate) sequence: u64,
    pub(crate) id: String,
    pub(crate) attempts: u32,
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

    pub(crate) async fn state(&self) -> Result<State, Failure> {
        self.get("/state.json").await
    }

    /// All dead letters.
    pub(crate) async fn letters(&self) -> Result<Vec<Letter>, Failure> {
        let mut letters = Vec::<Letter>::new();
        loop {
            let after = letters.last().map_or(0, |letter| letter.sequence);
            let page: Vec<Letter> = self.get(&format!("/letters?after={after}")).await?;
            if page.is_empty() {
                return Ok(letters);
            }
            letters.extend(page);
        }
    }

    pub(crate) async fn redrive(&self, sequences: &[u64]) -> Result<(), Failure> {
        let body = json!({ "sequences": sequences }).to_string();
        let answer = self.ask(Method::POST, "/letters/redrive", Body::from(body));
        let (status, body) = answer.await?;
        if !status.is_success() {
            return Err(format!("/letters/redrive: {status}: {body}").into());
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
