//! The routes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Extension, OriginalUri, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use futures::stream;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{Asked, host, is_this_machine};
use crate::action::Action;
use crate::assets;
use crate::detail::Detail;
use crate::feed::{Feed, Viewer};
use crate::guard::{Who, guard};
use crate::letter_routes::{act_on_letters, letter, letters, stop_job};
use crate::refusal::Refusal;
use crate::rows::{Row, cut};
use crate::state::{COOKIE, Shared, cookie};
use crate::target::NotActed;

/// Most bytes of a body: a key to search for.
const MOST_BYTES: usize = 256 << 10;

/// A comment goes to a viewer in such a pause, so that a connection that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) fn routes(state: Shared) -> Router {
    Router::new()
        .route("/", get(assets::page))
        .route("/app.css", get(assets::style))
        .route("/app.js", get(assets::script))
        .route("/icon.svg", get(assets::icon))
        .route("/about", get(about))
        .route("/feed", get(feed))
        .route("/lanes", get(lanes))
        .route("/lane", get(lane))
        .route("/find", post(find))
        .route("/act", post(act))
        .route("/letters", get(letters))
        .route("/letter", get(letter))
        .route("/letters/act", post(act_on_letters))
        .route("/letters/stop", post(stop_job))
        .route("/session", post(sign_in).delete(sign_out))
        .with_state(Arc::clone(&state))
        .fallback(async || Refusal::NoSuchPage)
        .method_not_allowed_fallback(async || Refusal::NoSuchPage)
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .layer(middleware::from_fn_with_state(state, guard))
}

async fn about(State(state): State<Shared>) -> Json<Value> {
    let dispatchers = state.dispatchers.iter().map(|shown| shown.target.name());
    let decoding = state.dispatchers.iter();
    let decoding = decoding.filter(|shown| shown.target.decodes());
    let decoding = decoding.map(|shown| shown.target.name());
    let letters = state.shelves.iter().map(|shelf| &shelf.name);
    Json(json!({
        "life": state.life,
        "dispatchers": dispatchers.collect::<Vec<_>>(),
        "decoding": decoding.collect::<Vec<_>>(),
        "intakes": state.intakes,
        "letters": letters.collect::<Vec<_>>(),
        "actions": state.allowed,
        "has_token": state.sessions.is_some(),
    }))
}

async fn feed(State(state): State<Shared>, headers: HeaderMap) -> Result<Response, Refusal> {
    state.room_for_viewer()?;
    Ok(events(&state.overview, &headers))
}

#[derive(Debug, Deserialize)]
struct Which {
    dispatcher: String,
    #[serde(default)]
    id: String,
}

async fn lanes(
    State(state): State<Shared>,
    which: Result<Query<Which>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let Query(which) = which.map_err(|error| Refusal::BadRequest(error.body_text()))?;
    let shown = state.shown(&which.dispatcher)?;
    state.room_for_viewer()?;
    Ok(events(&shown.lanes, &headers))
}

fn events(feed: &Feed, headers: &HeaderMap) -> Response {
    let last_id = headers.get("last-event-id");
    let viewer = feed.view(last_id.and_then(|id| id.to_str().ok()));
    let events = stream::unfold(viewer, async |mut viewer: Viewer| {
        let frame = viewer.next().await?;
        let event = Event::default().id(frame.id).data(frame.data);
        Some((Ok::<_, Infallible>(event), viewer))
    });
    let mut response = Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response();
    // Some proxies gather what they pass on, unless they are told.
    let headers = response.headers_mut();
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

async fn lane(
    State(state): State<Shared>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Detail>, Refusal> {
    let Query(which) = which.map_err(|error| Refusal::BadRequest(error.body_text()))?;
    let shown = state.shown(&which.dispatcher)?;
    let lane = shown.target.lane(&which.id).await;
    lane.map(Json).ok_or(Refusal::UnknownLane)
}

#[derive(Debug, Deserialize)]
struct Find {
    dispatcher: String,
    key: String,
}

/// The search is a `POST`, because an address is written into logs, and a key may be long.
async fn find(
    State(state): State<Shared>,
    find: Result<Json<Find>, JsonRejection>,
) -> Result<Json<Row>, Refusal> {
    let Json(find) = find.map_err(|error| Refusal::BadRequest(error.body_text()))?;
    let shown = state.shown(&find.dispatcher)?;
    shown.target.find(&find.key).map(Json).ok_or(Refusal::NoKey)
}

#[derive(Debug, Deserialize)]
struct Act {
    dispatcher: String,
    id: String,
    action: Action,
    /// The text of the new message, for a replacement.
    #[serde(default)]
    message: String,
}

async fn act(
    State(state): State<Shared>,
    Extension(who): Extension<Who>,
    act: Result<Json<Act>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let Json(act) = act.map_err(|error| Refusal::BadRequest(error.body_text()))?;
    let shown = state.shown(&act.dispatcher)?;
    if !state.allowed.contains(&act.action) {
        log(who, &act, "", Err(&Refusal::NotAllowed));
        return Err(Refusal::NotAllowed);
    }
    let target = Arc::clone(&shown.target);
    let (id, action, message) = (act.id.clone(), act.action, act.message.clone());
    // A purge drops messages of the user's type, as many as there are.
    let acted = tokio::task::spawn_blocking(move || target.act(&id, action, &message)).await;
    let (key, done) = match acted.unwrap_or(Err(NotActed::Panicked)) {
        Ok(acted) => (acted.key, Ok(acted.purged)),
        Err(why) => {
            let (key, refusal) = refused(why);
            (key, Err(refusal))
        }
    };
    log(who, &act, &key, done.as_ref().map(|_| ()));
    Ok(Json(json!({ "purged": done? })))
}

/// The key of the lane, and what is answered.
fn refused(why: NotActed) -> (String, Refusal) {
    match why {
        NotActed::UnknownId => (String::new(), Refusal::UnknownLane),
        NotActed::Panicked => (String::new(), Refusal::Failed),
        NotActed::Nothing(key) => (key, Refusal::NothingToDecide),
        NotActed::InFlight(key) => (key, Refusal::InFlight),
        NotActed::NoMessage(key, why) => (key, Refusal::NoMessage(why)),
        NotActed::Unfit => {
            let why = "post this action to `letters/act`".to_owned();
            (String::new(), Refusal::BadRequest(why))
        }
    }
}

/// Every action is in the log, with who and what, whether or not it was done.
fn log(who: Who, act: &Act, key: &str, done: Result<(), &Refusal>) {
    let peer = who.peer.map(|peer| peer.to_string());
    tracing::warn!(
        target: "keylane_console",
        action = ?act.action,
        dispatcher = %act.dispatcher,
        // As a literal: a key must not make a line of its own.
        key = ?cut(key),
        session = who.session,
        peer = peer.as_deref().unwrap_or("unknown"),
        result = done.map_or_else(Refusal::name, |()| "done"),
        "an operator acts on a lane"
    );
}

#[derive(Debug, Deserialize)]
struct Token {
    token: String,
}

async fn sign_in(
    State(state): State<Shared>,
    OriginalUri(original): OriginalUri,
    request: Request,
) -> Result<Response, Refusal> {
    let sessions = state.sessions.as_ref().ok_or(Refusal::NoSuchPage)?;
    let is_local = host(Asked {
        method: request.method(),
        uri: request.uri(),
        version: request.version(),
        headers: request.headers(),
        peer: None,
        is_page: false,
    });
    let is_local = is_local.is_some_and(|host| is_this_machine(&host));
    let who = request.extensions().get::<Who>().copied();
    let token = <Json<Token> as axum::extract::FromRequest<()>>::from_request(request, &()).await;
    let Json(token) = token.map_err(|error| Refusal::BadRequest(error.body_text()))?;
    let opened = sessions.open(&token.token);
    let peer = who.and_then(|who| who.peer).map(|peer| peer.to_string());
    let peer = peer.as_deref().unwrap_or("unknown");
    match &opened {
        Ok((session, _)) => {
            tracing::info!(target: "keylane_console", session, peer, "a session has begun");
        }
        Err(why) => tracing::warn!(target: "keylane_console", ?why, peer, "no session was opened"),
    }
    let (_, secret) = opened.map_err(Refusal::NoSession)?;
    // Other machines are reached over TLS; a browser sends this cookie nowhere else.
    let secure = if is_local { "" } else { "; Secure" };
    let cookie = format!(
        "{COOKIE}={secret}; Path={}; Max-Age=43200; HttpOnly; SameSite=Strict{secure}",
        mount(original.path())
    );
    Ok(([(header::SET_COOKIE, cookie)], StatusCode::NO_CONTENT).into_response())
}

/// Where the console is nested, from the path of `session`.
fn mount(path: &str) -> &str {
    match path.strip_suffix("/session") {
        // A path with characters that end an attribute of a cookie.
        Some(path) if path.contains([';', ',', ' ']) => "/",
        Some("") | None => "/",
        Some(path) => path,
    }
}

async fn sign_out(State(state): State<Shared>, headers: HeaderMap) -> StatusCode {
    if let (Some(sessions), Some(secret)) = (&state.sessions, cookie(&headers)) {
        sessions.close(secret);
    }
    StatusCode::NO_CONTENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_for_the_console_only() {
        assert_eq!(mount("/session"), "/");
        assert_eq!(mount("/ops/console/session"), "/ops/console");
        assert_eq!(mount("/a; Domain=evil.example/session"), "/");
    }
}
