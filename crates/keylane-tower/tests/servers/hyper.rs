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
use keylane_tower::Error;
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};

use crate::desk::Desk;
use crate::front::{Front, scenarios};
use crate::http::{Connection, refusal};

struct Hyper;

scenarios!(Hyper);

type Nothing = Empty<&'static [u8]>;

impl Front for Hyper {
    type Client = Connection;

    async fn serve(
        listener: TcpListener,
        desk: Desk,
        stop: impl Future<Output = ()> + Send + 'static,
    ) {
        // hyper ends the connection of a request whose service fails, so the layer's errors are made answers.
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
            .layer(desk.layer::<_, Incoming>())
            .service(service_fn(move |request: Request<Incoming>| {
                let desk = desk.clone();
                async move {
                    desk.handle(request.headers()).await;
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
