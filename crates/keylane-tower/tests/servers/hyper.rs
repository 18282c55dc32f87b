//! A bare hyper server: the layer by `TowerToHyperService`, over HTTP/1.

use std::convert::Infallible;
use std::net::SocketAddr;

use ::http::{Request, Response};
use ::hyper::body::Incoming;
use ::hyper::server::conn::http1;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use keylane_testkit::Evidence;
use keylane_tower::{Error, KeyedSemaphore};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};

use crate::front::{Answer, Ask, Front, Server, run, scenarios};
use crate::http::{Connection, refusal};
use crate::support::Support;

struct Hyper;

scenarios!(Hyper);

/// `then` sees no error of `poll_ready`: hyper ends the connection.
#[test]
fn after_the_close_each_connection_ends() {
    run(async {
        let support = Support::new(KeyedSemaphore::builder(), |script, _| script);
        let server = Server::start::<Hyper>(&support).await;
        let mut client = Hyper::connect(server.address, 1).await.remove(0);
        assert_eq!(client.ask(7, 1).await, Answer::Done);
        support.semaphore.close();
        assert_eq!(client.ask(7, 2).await, Answer::Broken);
        support.judge(Evidence::new()).await;
    });
}

type Nothing = Empty<&'static [u8]>;

impl Front for Hyper {
    type Client = Connection;

    async fn serve(
        listener: TcpListener,
        support: Support,
        stop: impl Future<Output = ()> + Send + 'static,
    ) {
        // hyper ends the connection of a request whose service fails, so the layer's errors are
        // made answers.
        let service = ServiceBuilder::new()
            .then(
                async |answer: Result<Response<Nothing>, Error<Infallible>>| {
                    let answer = answer.or_else(|error| {
                        let mut refused = Response::new(Nothing::new());
                        *refused.status_mut() = refusal(&error);
                        Ok(refused)
                    });
                    answer as Result<_, Error<Infallible>>
                },
            )
            .layer(support.layer::<_, Incoming>())
            .service(service_fn(move |request: Request<Incoming>| {
                let support = support.clone();
                async move {
                    support.handle(request.headers()).await;
                    Ok::<_, Infallible>(Response::new(Nothing::new()))
                }
            }));

        let connections = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => accepted.expect("it listens").0,
                () = &mut stop => break,
            };
            let service = TowerToHyperService::new(service.clone());
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connections.watch(connection));
        }
        connections.shutdown().await;
    }

    async fn connect(address: SocketAddr, count: usize) -> Vec<Connection> {
        Connection::open(address, count).await
    }
}
