//! The rules in front of every route, and what a browser is told with every answer.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::Method;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::access::Asked;
use crate::refusal::Refusal;
use crate::state;
use crate::who::Who;

/// Nothing from elsewhere, nothing inline, no frames, and no text that becomes markup.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
];

/// The page and its files, which hold no data.
const PAGE: [&str; 4] = ["/", "/app.css", "/app.js", "/icon.svg"];

/// The actions: one that is refused here is in the log, too.
const ACTIONS: [&str; 3] = ["/act", "/letters/act", "/letters/stop"];

pub(crate) async fn guard(
    State(state): State<Arc<state::State>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut response = match check(&state, &request) {
        Ok(who) => {
            request.extensions_mut().insert(who);
            next.run(request).await
        }
        Err(refusal) => {
            log(&state, &request, &refusal);
            refusal.into_response()
        }
    };
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

fn check(state: &state::State, request: &Request) -> Result<Who, Refusal> {
    let path = request.uri().path();
    let is_page = PAGE.contains(&path);
    let peer = peer(request);
    let asked = Asked {
        method: request.method(),
        uri: request.uri(),
        version: request.version(),
        headers: request.headers(),
        peer,
        is_page,
    };
    state.rules.check(asked).map_err(Refusal::Foreign)?;
    let session = match state.session(request.headers()) {
        Err(_) if is_page || path == "/session" => 0,
        session => session?,
    };
    Ok(Who { session, peer })
}

fn peer(request: &Request) -> Option<SocketAddr> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map(|ConnectInfo(peer)| *peer)
}

fn log(state: &state::State, request: &Request, refusal: &Refusal) {
    let path = request.uri().path();
    if request.method() == Method::POST && ACTIONS.contains(&path) {
        let who = Who {
            session: state.session(request.headers()).unwrap_or_default(),
            peer: peer(request),
        };
        state.log_unread(path, who, refusal);
    }
}
