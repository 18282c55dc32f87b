//! A small HTTP client, for the demo.

use std::error::Error;
use std::net::SocketAddr;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client as Connections;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Sends requests, each at once: if no connection is free, over a new one.
#[derive(Clone)]
pub(crate) struct Client {
    connections: Connections<HttpConnector, Body>,
    address: SocketAddr,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            connections: Connections::builder(TokioExecutor::new()).build_http(),
            address,
        }
    }

    /// Orders something.
    pub(crate) async fn order(
        &self,
        user: &str,
        item: &str,
        takes_ms: u64,
    ) -> Result<(StatusCode, String), Failure> {
        let order = json!({ "item": item, "takes_ms": takes_ms });
        let request = Request::post(format!("http://{}/orders", self.address))
            .header("x-user", user)
            .header("content-type", "application/json")
            .body(Body::from(order.to_string()))?;
        self.ask(request).await
    }

    /// Looks at something.
    pub(crate) async fn get(&self, path: &str) -> Result<String, Failure> {
        let request = Request::get(format!("http://{}{path}", self.address)).body(Body::empty())?;
        Ok(self.ask(request).await?.1)
    }

    async fn ask(&self, request: Request<Body>) -> Result<(StatusCode, String), Failure> {
        let response = self.connections.request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.into())?))
    }
}
