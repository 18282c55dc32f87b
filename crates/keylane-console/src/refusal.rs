//! What is answered instead: a status, a name for programs, and a sentence for people.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::access::Foreign;
use crate::sessions::NoSession;

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    Foreign(Foreign),
    SignIn,
    NoSession(NoSession),
    NotAllowed,
    NoSuchPage,
    NoSuchDispatcher,
    BadRequest(String),
    NoKey,
    KeyTooLong,
    UnknownLane,
    NoSuchLetters,
    UnknownLetter,
    NoMessage(String),
    JobRuns,
    NoJob,
    StoreFailed(String),
    NothingToDecide,
    InFlight,
    TooManyViewers,
    Failed,
}

impl Refusal {
    fn parts(&self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Foreign(foreign) => of_foreign(*foreign),
            Self::SignIn => (401, "sign_in", "post the token to `session` first"),
            Self::NoSession(NoSession::WrongToken) => (
                403,
                "wrong_token",
                "use the token that the service was started with",
            ),
            Self::NoSession(NoSession::TooManyWrong) => (
                429,
                "too_many_wrong_tokens",
                "wait a minute, then sign in again",
            ),
            Self::NoSession(NoSession::NoSecret) => (
                500,
                "no_random_numbers",
                "look at the random source of the system",
            ),
            Self::NotAllowed => (
                403,
                "not_allowed",
                "allow the action with `Builder::allow` in the service",
            ),
            Self::NoSuchPage => (404, "no_such_page", "open the start page of the console"),
            Self::NoSuchDispatcher => (404, "no_such_dispatcher", "take a name of `about`"),
            Self::BadRequest(_) => (400, "bad_request", "send what the README describes"),
            Self::NoKey => (422, "no_key", "write the key as the console shows keys"),
            Self::KeyTooLong => (
                422,
                "key_too_long",
                "search for a key of at most 16 KiB of text; the lists show longer ones too",
            ),
            Self::UnknownLane => (404, "unknown_lane", "search for the key again"),
            Self::NoSuchLetters => (404, "no_such_letters", "take a name of `about`"),
            Self::UnknownLetter => (404, "unknown_letter", "load the list again"),
            Self::NoMessage(_) => (
                422,
                "no_message",
                "write a message of this key, as `View::decode` reads it",
            ),
            Self::JobRuns => (409, "job_runs", "wait for the job to end, or stop it"),
            Self::NoJob => (409, "no_job", "look at the letters: no job runs"),
            Self::StoreFailed(_) => (
                502,
                "store_failed",
                "look at the store of the letters, then try again",
            ),
            Self::NothingToDecide => (
                409,
                "nothing_to_decide",
                "look at the lane: it has moved on",
            ),
            Self::InFlight => (
                409,
                "in_flight",
                "wait for the attempt to end, or pause the lane",
            ),
            Self::TooManyViewers => (503, "too_many_viewers", "close another page of the console"),
            Self::Failed => (
                500,
                "failed",
                "it may be done: look again, and into the log of the service",
            ),
        }
    }

    /// The name for programs.
    pub(crate) fn name(&self) -> &'static str {
        self.parts().1
    }

    /// The reason, where the name does not say all.
    pub(crate) fn why(&self) -> Option<&str> {
        match self {
            Self::BadRequest(why) | Self::NoMessage(why) | Self::StoreFailed(why) => Some(why),
            _ => None,
        }
    }
}

fn of_foreign(foreign: Foreign) -> (u16, &'static str, &'static str) {
    match foreign {
        Foreign::Host => (
            403,
            "foreign_host",
            "use a name of this machine, or set `Builder::remote`",
        ),
        Foreign::Peer => (
            403,
            "foreign_peer",
            "ask from this machine, or set a token and `Builder::remote`",
        ),
        Foreign::UnknownPeer => (
            403,
            "unknown_peer",
            "serve with `into_make_service_with_connect_info::<SocketAddr>()`",
        ),
        Foreign::Origin => (403, "foreign_origin", "act from the console's own page"),
        Foreign::Plain => (403, "no_header", "send the header `x-keylane-console: 1`"),
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, error, what_to_do) = self.parts();
        let why = self.why().unwrap_or_default();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = json!({ "error": error, "what_to_do": what_to_do, "why": why });
        (status, Json(body)).into_response()
    }
}
