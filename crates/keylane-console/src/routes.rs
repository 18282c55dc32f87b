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
use tokio::task::spawn_blocking;

use crate::access::{Asked, host, is_forwarded, is_this_machine};
use crate::acting::done_and_logged;
use crate::action::Action;
use crate::assets;
use crate::detail::Detail;
use crate::feed::{Feed, Viewer};
use crate::guard::guard;
use crate::letter_routes::{act_on_letters, letter, letters, stop_job};
use crate::refusal::Refusal;
use crate::rows::{Row, cut};
use crate::sessions::{Client, NoSession};
use crate::state::{OpenSession, Shared};
use crate::target::{Acted, NotActed, Target};
use crate::who::Who;

/// Most bytes of a body: the text of a message that replaces another one.
const MOST_BYTES: usize = 256 << 10;

/// Most bytes of the text of a key that is searched for. The key is remembered by its id, also if
/// it has no messages: a viewer could fill the memory with long ones.
const MOST_KEY: usize = 16 << 10;

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
    Ok(events(&state, &state.overview, &headers))
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
    Ok(events(&state, &shown.lanes, &headers))
}

/// A feed for one viewer. It ends with the session of the viewer, at the next look.
fn events(state: &Shared, feed: &Feed, headers: &HeaderMap) -> Response {
    let session = OpenSession::of(state, headers);
    let last_id = headers.get("last-event-id");
    let viewer = feed.view(last_id.and_then(|id| id.to_str().ok()));
    let viewing = (viewer, session);
    let events = stream::unfold(
        viewing,
        async |(mut viewer, session): (Viewer, OpenSession)| {
            let frame = viewer.next().await?;
            if !session.is_open() {
                return None;
            }
            let event = Event::default().id(frame.id).data(frame.data);
            Some((Ok::<_, Infallible>(event), (viewer, session)))
        },
    );
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
    let (lane, (holds_back, more_held)) = tokio::join!(
        shown.target.lane(&which.id),
        state.fronts.held_by(&which.dispatcher, &which.id),
    );
    let lane = lane.ok_or(Refusal::UnknownLane)?;
    Ok(Json(Detail {
        holds_back,
        more_held,
        ..lane
    }))
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
    if find.key.len() > MOST_KEY {
        return Err(Refusal::KeyTooLong);
    }
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
    let Json(act) = act.map_err(|error| state.unread("/act", who, &error))?;
    let act = Arc::new(act);
    let target = state.shown(&act.dispatcher);
    let target = target.map(|shown| Arc::clone(&shown.target));
    // Before anything is done that could panic: the log must have it.
    let key = target.as_ref().ok().and_then(|target| target.key(&act.id));
    let key = key.unwrap_or_default();
    let logged = Arc::clone(&act);
    let acted = done_and_logged(
        async move { act_on_lane(&state, target?, &act).await },
        move |acted| log(who, &logged, &key, acted),
    );
    Ok(Json(json!({ "purged": acted.await?.purged })))
}

async fn act_on_lane(
    state: &Shared,
    target: Arc<dyn Target>,
    act: &Arc<Act>,
) -> Result<Acted, Refusal> {
    if !state.allowed.contains(&act.action) {
        return Err(Refusal::NotAllowed);
    }
    let act = Arc::clone(act);
    // A purge drops messages of the user's type, as many as there are.
    let acting = spawn_blocking(move || target.act(&act.id, act.action, &act.message));
    let acted = acting.await.unwrap_or(Err(NotActed::Panicked));
    acted.map_err(refused)
}

/// What is answered.
fn refused(why: NotActed) -> Refusal {
    match why {
        NotActed::UnknownId => Refusal::UnknownLane,
        NotActed::Panicked => Refusal::Failed,
        NotActed::Nothing => Refusal::NothingToDecide,
        NotActed::InFlight => Refusal::InFlight,
        NotActed::NoMessage(why) => Refusal::NoMessage(why),
        NotActed::Unfit => Refusal::BadRequest("post this action to `letters/act`".to_owned()),
    }
}

/// Every action is in the log, with who and what, whether or not it was done.
fn log(who: Who, act: &Act, key: &str, acted: Result<&Acted, &Refusal>) {
    tracing::warn!(
        target: "keylane_console",
        action = ?act.action,
        // As literals: they must not make a line of their own.
        dispatcher = ?cut(&act.dispatcher),
        key = ?cut(key),
        session = who.session,
        peer = who.peer(),
        result = acted.map_or_else(Refusal::name, |_| "done"),
        count = acted.ok().and_then(|acted| acted.count()),
        // From a store, or from what an operator has written: as a literal, too.
        why = acted.err().and_then(Refusal::why).map(cut).map(tracing::field::debug),
        "an operator acts on a lane"
    );
}

#[derive(Debug, Deserialize)]
struct Token {
    token: String,
}

async fn sign_in(
    State(state): State<Shared>,
    Extension(who): Extension<Who>,
    OriginalUri(original): OriginalUri,
    request: Request,
) -> Result<Response, Refusal> {
    let sessions = state.sessions.as_ref().ok_or(Refusal::NoSuchPage)?;
    let asked = Asked {
        method: request.method(),
        uri: request.uri(),
        version: request.version(),
        headers: request.headers(),
        peer: who.peer,
        is_page: false,
    };
    let is_local = host(asked).is_some_and(|host| is_this_machine(&host));
    let client = Client::of(who.peer.map(|peer| peer.ip()), is_forwarded(asked));
    let token = <Json<Token> as axum::extract::FromRequest<()>>::from_request(request, &()).await;
    let Json(token) = token.map_err(|error| Refusal::BadRequest(error.body_text()))?;
    let opened = sessions.open(&token.token, client);
    log_session(&state, who, opened.as_ref());
    let (_, secret) = opened.map_err(Refusal::NoSession)?;
    // Other machines are reached over TLS; a browser sends this cookie nowhere else.
    let secure = if is_local { "" } else { "; Secure" };
    let cookie = format!(
        "{}={secret}; Path={}; Max-Age=43200; HttpOnly; SameSite=Strict{secure}",
        state.cookie,
        mount(original.path())
    );
    Ok(([(header::SET_COOKIE, cookie)], StatusCode::NO_CONTENT).into_response())
}

/// Each session is in the log. Those who have no token could have lines written, so they are few.
fn log_session(state: &Shared, who: Who, opened: Result<&(u64, String), &NoSession>) {
    let peer = who.peer();
    match opened {
        Ok((session, _)) => {
            tracing::info!(target: "keylane_console", session, peer, "a session has begun");
        }
        Err(why) => {
            if let Some(suppressed) = state.refused.admit(Refusal::NoSession(*why).name()) {
                tracing::warn!(
                    target: "keylane_console", ?why, peer, suppressed, "no session was opened"
                );
            }
        }
    }
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

async fn sign_out(
    State(state): State<Shared>,
    Extension(who): Extension<Who>,
    headers: HeaderMap,
) -> StatusCode {
    if let (Some(sessions), Some(secret)) = (&state.sessions, state.secret(&headers)) {
        sessions.close(secret);
        let (session, peer) = (who.session, who.peer());
        tracing::info!(target: "keylane_console", session, peer, "a session was signed out");
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
