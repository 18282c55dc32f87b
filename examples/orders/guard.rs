//! Who may order: programs of this machine only, and no page of elsewhere.
//!
//! The server listens on the loopback interface only. A page of the world can still make a browser of this
//! machine ask it: under a name that leads here (its `Host` is foreign), or from its own origin (`Origin`
//! is foreign). Both are refused.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::refusal::Refusal;

/// What a browser is told with every answer: it is data, and no page.
const HEADERS: [(HeaderName, &str); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
];

pub(crate) async fn guard(
    State(address): State<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let refusal = refusal(address, request.uri(), request.headers());
    let mut response = match refusal {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

fn refusal(address: SocketAddr, uri: &Uri, headers: &HeaderMap) -> Option<Refusal> {
    let host = match uri.authority() {
        Some(authority) => authority.clone(),
        None => {
            let mut hosts = headers.get_all(header::HOST).iter();
            let host = hosts.next().filter(|_| hosts.next().is_none());
            let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
            match host {
                Some(host) => host,
                None => return Some(Refusal::ForeignHost),
            }
        }
    };
    let is_here = matches!(host.host(), "127.0.0.1" | "localhost" | "[::1]")
        && host.port_u16().unwrap_or(80) == address.port();
    if !is_here {
        return Some(Refusal::ForeignHost);
    }
    // A browser names the origin of everything that is not merely read. Others may leave it out.
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_ours = match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(origin), None) => origin.as_bytes() == format!("http://{host}").as_bytes(),
        (Some(_), Some(_)) => false,
    };
    (!is_ours).then_some(Refusal::ForeignOrigin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(path: &'static str, headers: &[(&str, &str)]) -> &'static str {
        let headers = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        });
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value);
        }
        let address = SocketAddr::from(([127, 0, 0, 1], 3_000));
        match refusal(address, &Uri::from_static(path), &map) {
            None => "ok",
            Some(Refusal::ForeignHost) => "host",
            Some(Refusal::ForeignOrigin) => "origin",
            Some(other) => panic!("{other}"),
        }
    }

    #[test]
    fn only_the_hosts_of_this_machine_are_answered() {
        let get = |host| answer("/", &[("host", host)]);
        for host in ["127.0.0.1:3000", "localhost:3000", "[::1]:3000"] {
            assert_eq!(get(host), "ok", "{host}");
        }
        let foreign = [
            "evil.example:3000",
            "127.0.0.1",
            "127.0.0.1:3001",
            "localhost.evil.example:3000",
            "evil@127.0.0.2:3000",
            "",
        ];
        for host in foreign {
            assert_eq!(get(host), "host", "{host}");
        }
        assert_eq!(answer("/", &[]), "host");
        let two = [("host", "127.0.0.1:3000"), ("host", "evil.example")];
        assert_eq!(answer("/", &two), "host");
    }

    #[test]
    fn programs_may_order_and_foreign_pages_may_not() {
        let here = ("host", "localhost:3000");
        let ours = ("origin", "http://localhost:3000");
        assert_eq!(answer("/orders", &[here]), "ok");
        assert_eq!(answer("/orders", &[here, ours]), "ok");
        assert_eq!(answer("/orders", &[here, ours, ours]), "origin");
        for origin in [
            "null",
            "http://evil.example",
            "https://localhost:3000",
            "http://localhost:3001",
            "http://127.0.0.1:3000",
        ] {
            assert_eq!(
                answer("/orders", &[here, ("origin", origin)]),
                "origin",
                "{origin}"
            );
        }
    }
}
