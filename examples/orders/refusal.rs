//! Why a request was not done, as JSON that says what to do.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use keylane_inbox::error::{AcceptError, StoreError};
use serde_json::json;

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the body is not declared as JSON")]
    NotJson,
    #[error("the body is no JSON: {0}")]
    BadJson(String),
    #[error("this is no order: {0}")]
    BadOrder(String),
    #[error("the body is too large")]
    TooLarge,
    #[error("this id was given to another order")]
    IdTaken,
    #[error("too many orders come at once")]
    Busy,
    #[error("as many orders as there is room for are waiting")]
    Full,
    #[error("the disk is full")]
    NoSpace,
    #[error("the order was not confirmed: {0}")]
    Unavailable(StoreError),
    #[error("the shop is closing")]
    Closing,
    #[error("what is stored cannot be read: {0}")]
    Damaged(StoreError),
    #[error("this server is not the host that was asked for")]
    ForeignHost,
    #[error("the request comes from a page of elsewhere")]
    ForeignOrigin,
    #[error("there is no such page")]
    NoSuchPage,
    #[error("this is not done with that method")]
    NoSuchMethod,
}

impl Refusal {
    fn answer(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::NotJson => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not_json",
                "send the header content-type: application/json",
            ),
            Self::BadJson(_) => (
                StatusCode::BAD_REQUEST,
                "bad_json",
                "send JSON such as {\"id\":\"1\",\"user\":\"ann\",\"cents\":250}",
            ),
            Self::BadOrder(_) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "bad_order",
                "send JSON such as {\"id\":\"1\",\"user\":\"ann\",\"cents\":250}",
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "send at most 16 KiB",
            ),
            Self::IdTaken => (
                StatusCode::CONFLICT,
                "id_taken",
                "nothing was stored: give every order an id of its own",
            ),
            Self::Busy => (
                StatusCode::TOO_MANY_REQUESTS,
                "busy",
                "nothing was stored: send it again in a second",
            ),
            Self::Full => (
                StatusCode::TOO_MANY_REQUESTS,
                "full",
                "nothing was stored: send it again when there is room",
            ),
            Self::NoSpace => (
                StatusCode::INSUFFICIENT_STORAGE,
                "no_space",
                "free some room, and send it again with the same id",
            ),
            Self::Unavailable(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "it may be stored or not: send it again with the same id",
            ),
            Self::Closing => (
                StatusCode::SERVICE_UNAVAILABLE,
                "closing",
                "nothing was stored: send it again when the shop is open",
            ),
            Self::Damaged(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "damaged",
                "stop the shop, and restore its directory from a backup",
            ),
            Self::ForeignHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "foreign_host",
                "ask for 127.0.0.1 or localhost, with the port of the shop",
            ),
            Self::ForeignOrigin => (
                StatusCode::FORBIDDEN,
                "foreign_origin",
                "leave the header origin out: no page of elsewhere may order",
            ),
            Self::NoSuchPage => (
                StatusCode::NOT_FOUND,
                "no_such_page",
                "there are POST /orders, GET /stats, GET /health/ready, GET /health/live and GET /console",
            ),
            Self::NoSuchMethod => (
                StatusCode::METHOD_NOT_ALLOWED,
                "no_such_method",
                "there are POST /orders, GET /stats, GET /health/ready, GET /health/live and GET /console",
            ),
        }
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::NotJson,
            StatusCode::UNPROCESSABLE_ENTITY => Self::BadOrder(rejection.body_text()),
            _ => Self::BadJson(rejection.body_text()),
        }
    }
}

impl<M> From<AcceptError<M>> for Refusal {
    fn from(error: AcceptError<M>) -> Self {
        match error {
            AcceptError::Store(error, _) => error.into(),
            other => Self::BadOrder(other.to_string()),
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::Closing,
            StoreError::NotCommitted { no_space: true, .. } => Self::NoSpace,
            StoreError::Damaged { .. } => Self::Damaged(error),
            _ => Self::Unavailable(error),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, name, what_to_do) = self.answer();
        let body = json!({
            "error": name,
            "message": self.to_string(),
            "what_to_do": what_to_do,
        });
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
            let second = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, second);
        }
        response
    }
}
