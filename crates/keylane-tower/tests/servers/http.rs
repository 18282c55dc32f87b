//! axum over HTTP/1, a connection for each client. The client is used for the bare hyper server
//! too.

use std::convert::Infallible;
use std::net::SocketAddr;

use ::http::{HeaderMap, Request, StatusCode};
use ::hyper::client::conn::http1::{SendRequest, handshake};
use axum::Router;
use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::extract::State;
use axum::routing::get;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use keylane_testkit::{Evidence, Id, Key};
use keylane_tower::{Error, KeyedSemaphore};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower::ServiceBuilder;

use crate::front::{Answer, Ask, Front, Server, run, scenarios};
use crate::support::Support;

struct Axum;

scenarios!(Axum);

/// `HandleErrorLayer` answers for those, too, for whom the layer does not become ready.
#[test]
fn after_the_close_each_request_is_answered() {
    run(async {
        let support = Support::new(KeyedSemaphore::builder(), |script, _| script);
        let server = Server::start::<Axum>(&support).await;
        let mut client = Axum::connect(server.address, 1).await.remove(0);
        assert_eq!(client.ask(7, 1).await, Answer::Done);
        support.semaphore.close();
        assert_eq!(client.ask(7, 2).await, Answer::Closed);
        assert_eq!(client.ask(None, 3).await, Answer::Closed);
        support.judge(Evidence::new()).await;
    });
}

impl Front for Axum {
    type Client = Connection;

    async fn serve(
        listener: TcpListener,
        support: Support,
        stop: impl Future<Output = ()> + Send + 'static,
    ) {
        async fn handle(State(support): State<Support>, headers: HeaderMap) -> String {
            support.handle(&headers).await.to_string()
        }
        let in_order = ServiceBuilder::new()
            .layer(HandleErrorLayer::new(async |error| refusal(&error)))
            .layer(support.layer::<_, Body>());
        let app = Router::new()
            .route("/", get(handle))
            .layer(in_order)
            .with_state(support);
        let server = axum::serve(listener, app).with_graceful_shutdown(stop);
        server.await.expect("it serves");
    }

    async fn connect(address: SocketAddr, count: usize) -> Vec<Connection> {
        Connection::open(address, count).await
    }
}

/// What the layer says, over HTTP.
pub(crate) fn refusal(error: &Error<Infallible>) -> StatusCode {
    match error {
        Error::LaneFull => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// A connection of its own. Dropped, it is closed.
pub(crate) struct Connection {
    requests: SendRequest<Empty<&'static [u8]>>,
    task: JoinHandle<()>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, count: usize) -> Vec<Self> {
        let mut connections = Vec::new();
        for _ in 0..count {
            let stream = TcpStream::connect(address).await.unwrap();
            let (requests, connection) = handshake(TokioIo::new(stream)).await.unwrap();
            let task = tokio::spawn(async {
                // The client hears of it as well.
                let _ = connection.await;
            });
            connections.push(Self { requests, task });
        }
        connections
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ask for Connection {
    async fn ask(&mut self, key: impl Into<Option<Key>> + Send, id: Id) -> Answer {
        let mut request = Request::get("/")
            .header("host", "orders")
            .header("x-id", id);
        if let Some(key) = key.into() {
            request = request.header("x-key", key);
        }
        let request = request.body(Empty::new()).expect("it is sound");
        if self.requests.ready().await.is_err() {
            return Answer::Broken;
        }
        match self.requests.send_request(request).await {
            Err(_) => Answer::Broken,
            Ok(response) => match response.status() {
                StatusCode::OK => Answer::Done,
                StatusCode::TOO_MANY_REQUESTS => Answer::LaneFull,
                StatusCode::SERVICE_UNAVAILABLE => Answer::Closed,
                other => panic!("{other}"),
            },
        }
    }
}
