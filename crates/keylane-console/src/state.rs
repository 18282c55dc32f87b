//! What the routes share.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::http::HeaderMap;
use axum::http::header;
use tokio_util::sync::CancellationToken;

use crate::access::Rules;
use crate::action::Action;
use crate::feed::Feed;
use crate::fronts::Fronts;
use crate::letters::Shelf;
use crate::refusal::Refusal;
use crate::reports::Reports;
use crate::rows::cut;
use crate::sessions::Sessions;
use crate::target::Target;
use crate::who::Who;

/// Most viewers of all feeds together.
const MOST_VIEWERS: usize = 256;

/// What the routes are given.
pub(crate) type Shared = Arc<State>;

/// One dispatcher, and the feed of its lanes.
pub(crate) struct Shown {
    pub(crate) target: Arc<dyn Target>,
    pub(crate) lanes: Feed,
}

pub(crate) struct State {
    pub(crate) life: String,
    /// The name of the cookie of a session. It has the name of the process in it, because a
    /// browser sends a cookie to all ports of a host: other consoles there have cookies too.
    pub(crate) cookie: String,
    pub(crate) rules: Rules,
    pub(crate) sessions: Option<Sessions>,
    pub(crate) allowed: Vec<Action>,
    pub(crate) dispatchers: Vec<Shown>,
    pub(crate) intakes: Vec<String>,
    pub(crate) shelves: Arc<[Arc<Shelf>]>,
    pub(crate) fronts: Arc<Fronts>,
    pub(crate) overview: Feed,
    pub(crate) closed: CancellationToken,
    /// Lines about those who have not shown that they may ask.
    pub(crate) refused: Reports,
}

impl State {
    pub(crate) fn shown(&self, name: &str) -> Result<&Shown, Refusal> {
        let mut dispatchers = self.dispatchers.iter();
        let shown = dispatchers.find(|shown| shown.target.name() == name);
        shown.ok_or(Refusal::NoSuchDispatcher)
    }

    pub(crate) fn shelf(&self, name: &str) -> Result<&Arc<Shelf>, Refusal> {
        let mut shelves = self.shelves.iter();
        let shelf = shelves.find(|shelf| shelf.name == name);
        shelf.ok_or(Refusal::NoSuchLetters)
    }

    /// Logs an action that cannot be read, and returns its refusal.
    pub(crate) fn unread(&self, path: &str, who: Who, error: &JsonRejection) -> Refusal {
        let refusal = Refusal::BadRequest(error.body_text());
        self.log_unread(path, who, &refusal);
        refusal
    }

    /// Logs an action that is refused before it is read, or because it cannot be read. Each client
    /// that reaches the port can have such lines written, so they are few.
    pub(crate) fn log_unread(&self, path: &str, who: Who, refusal: &Refusal) {
        if let Some(suppressed) = self.refused.admit(refusal.name()) {
            tracing::warn!(
                target: "keylane_console",
                path,
                session = who.session,
                peer = who.peer(),
                result = refusal.name(),
                // From the client: as a literal, so that it makes no line of its own.
                why = refusal.why().map(cut).map(tracing::field::debug),
                suppressed,
                "an action is refused unread"
            );
        }
    }

    /// # Errors
    ///
    /// [`Refusal::TooManyViewers`].
    pub(crate) fn room_for_viewer(&self) -> Result<(), Refusal> {
        let feeds = self.dispatchers.iter().map(|shown| &shown.lanes);
        let viewers: usize = feeds.chain([&self.overview]).map(Feed::viewers).sum();
        if viewers < MOST_VIEWERS {
            Ok(())
        } else {
            Err(Refusal::TooManyViewers)
        }
    }

    /// The session of a request: its number, 0 if no token is set.
    ///
    /// # Errors
    ///
    /// [`Refusal::SignIn`].
    pub(crate) fn session(&self, headers: &HeaderMap) -> Result<u64, Refusal> {
        let Some(sessions) = &self.sessions else {
            return Ok(0);
        };
        let number = self.secret(headers);
        let number = number.and_then(|secret| sessions.number(secret));
        number.ok_or(Refusal::SignIn)
    }

    /// The secret of the session that a request names.
    pub(crate) fn secret<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let cookies = headers.get_all(header::COOKIE).iter();
        let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
        let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
        pairs.find_map(|pair| pair.trim().strip_prefix(&*self.cookie)?.strip_prefix('='))
    }
}

/// The session of a feed, looked at again with each event: it may be signed out or over.
pub(crate) struct OpenSession {
    state: Shared,
    secret: Option<String>,
}

impl OpenSession {
    pub(crate) fn of(state: &Shared, headers: &HeaderMap) -> Self {
        Self {
            state: Arc::clone(state),
            secret: state.secret(headers).map(str::to_owned),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        let Some(sessions) = &self.state.sessions else {
            return true;
        };
        let secret = self.secret.as_deref();
        secret.is_some_and(|secret| sessions.number(secret).is_some())
    }
}
