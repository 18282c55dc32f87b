//! A tonic server. The service is written by hand, so that nothing has to be generated.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::http::uri::PathAndQuery;
use ::http::{Request, Response};
use keylane_testkit::{Evidence, Id, Key};
use keylane_tower::KeyedSemaphore;
use keylane_tower::error::{Closed, LaneFull};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server as Tonic};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower::{BoxError, Service, ServiceBuilder};

use crate::front::{Answer, Ask, Front, Server, run, scenarios};
use crate::support::Support;

struct Grpc;

scenarios!(Grpc);

/// Calls of one connection, so that HTTP/2 has many of them in it.
const CALLS: usize = 8;

/// tonic has no answer for a call for which the layer does not become ready; it breaks the call
/// off.
#[test]
fn after_the_close_each_call_ends() {
    run(async {
        let support = Support::new(KeyedSemaphore::builder(), |script, _| script);
        let server = Server::start::<Grpc>(&support).await;
        let mut client = Grpc::connect(server.address, 1).await.remove(0);
        assert_eq!(client.ask(7, 1).await, Answer::Done);
        support.semaphore.close();
        assert_eq!(client.ask(7, 2).await, Answer::Broken);
        support.judge(Evidence::new()).await;
    });
}

impl Front for Grpc {
    type Client = Client;

    async fn serve(
        listener: TcpListener,
        support: Support,
        stop: impl Future<Output = ()> + Send + 'static,
    ) {
        let in_order = ServiceBuilder::new()
            .map_err(|error| status(BoxError::from(error)))
            .layer(support.layer::<_, Body>())
            .into_inner();
        Tonic::builder()
            .layer(in_order)
            .add_service(Echo(support))
            .serve_with_incoming_shutdown(TcpIncoming::from(listener), stop)
            .await
            .expect("it serves");
    }

    async fn connect(address: SocketAddr, count: usize) -> Vec<Client> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut clients = Vec::new();
        while clients.len() < count {
            let channel = endpoint.connect().await.unwrap();
            let left = count - clients.len();
            clients.extend((0..left.min(CALLS)).map(|_| Client(channel.clone())));
        }
        clients
    }
}

/// What the layer says, as gRPC says it.
fn status(error: BoxError) -> Status {
    if error.is::<LaneFull>() {
        Status::resource_exhausted(error.to_string())
    } else if error.is::<Closed>() {
        Status::unavailable(error.to_string())
    } else {
        Status::from_error(error)
    }
}

/// Answers with the number of the call.
#[derive(Clone)]
struct Echo(Support);

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Request<Body>) -> Self::Future {
        let method = self.clone();
        Box::pin(async {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<u64, u64>::default());
            Ok(grpc.unary(method, call).await)
        })
    }
}

impl UnaryService<u64> for Echo {
    type Response = u64;
    type Future = Boxed<Result<tonic::Response<u64>, Status>>;

    fn call(&mut self, call: tonic::Request<u64>) -> Self::Future {
        let support = self.0.clone();
        Box::pin(async move {
            let headers = call.metadata().clone().into_headers();
            Ok(tonic::Response::new(support.handle(&headers).await))
        })
    }
}

/// One of several that share a connection.
struct Client(Channel);

impl Ask for Client {
    async fn ask(&mut self, key: impl Into<Option<Key>> + Send, id: Id) -> Answer {
        let mut call = tonic::Request::new(id);
        call.metadata_mut().insert("x-id", id.into());
        if let Some(key) = key.into() {
            call.metadata_mut().insert("x-key", key.into());
        }
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        if grpc.ready().await.is_err() {
            return Answer::Broken;
        }
        let path = PathAndQuery::from_static("/test.Echo/Call");
        let answer = grpc.unary(call, path, ProstCodec::<u64, u64>::default());
        match answer.await {
            Ok(answer) => {
                assert_eq!(answer.into_inner(), id);
                Answer::Done
            }
            Err(status) => match status.code() {
                Code::ResourceExhausted => Answer::LaneFull,
                Code::Unavailable if status.message() == Closed.to_string() => Answer::Closed,
                _ => Answer::Broken,
            },
        }
    }
}
