//! A receiver of OTLP over HTTP, and an exporter to it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::routing::post;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_sdk::trace::SdkTracerProvider;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

/// What a collector has received.
#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<Mutex<Vec<Span>>>);

impl Collector {
    /// Starts a receiver, and returns the provider that exports to it.
    pub(crate) async fn start() -> (Self, SdkTracerProvider) {
        let collector = Self::default();
        let app = Router::new()
            .route("/v1/traces", post(receive))
            .with_state(collector.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        (collector, provider(address))
    }

    /// The spans that have come, by their names.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let mut spans = self.0.lock().unwrap().clone();
        spans.sort_by_key(|span| span.start_time_unix_nano);
        spans
    }
}

async fn receive(
    State(collector): State<Collector>,
    body: axum::body::Bytes,
) -> Result<([(header::HeaderName, &'static str); 1], Vec<u8>), StatusCode> {
    let request = ExportTraceServiceRequest::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let scopes = request.resource_spans.into_iter();
    let scopes = scopes.flat_map(|of_resource| of_resource.scope_spans);
    let spans = scopes.flat_map(|of_scope| of_scope.spans);
    collector.0.lock().unwrap().extend(spans);
    let answer = ExportTraceServiceResponse::default().encode_to_vec();
    Ok(([(header::CONTENT_TYPE, "application/x-protobuf")], answer))
}

fn provider(collector: SocketAddr) -> SdkTracerProvider {
    let client = HyperClient::with_default_connector(Duration::from_secs(60), None);
    let client = OnRuntime {
        client: Arc::new(client),
        runtime: Handle::current(),
    };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(format!("http://{collector}/v1/traces"))
        .build()
        .unwrap();
    SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .build()
}

/// A client for the thread that exports, which is not in the runtime.
#[derive(Debug)]
struct OnRuntime {
    client: Arc<HyperClient>,
    runtime: Handle,
}

#[keylane::async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = Arc::clone(&self.client);
        let sent = async move { client.send_bytes(request).await };
        self.runtime.spawn(sent).await?
    }
}
