//! Why an order was not taken, as JSON that says what to do.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{BoxError, Json};
use keylane_tower::error::{Closed, LaneFull};
use serde_json::json;
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;

/// Why an order was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("this order names no user")]
    NoUser,
    #[error("this is not an order: {0}")]
    BadOrder(String),
    #[error("there is no such page")]
    NoSuchPage,
    #[error("as many orders of this user as there is room for are waiting")]
    LaneFull,
    #[error("as many orders as there is room for are waiting")]
    Overloaded,
    #[error("the order took too long and was dropped")]
    TooLong,
    #[error("the shop is closing")]
    Closing,
    #[error("something went wrong")]
    Unexpected,
}

impl Refusal {
    /// The reason, as a label.
    pub(crate) fn name(&self) -> &'static str {
        self.answer().1
    }

    fn answer(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::NoUser => (
                StatusCode::BAD_REQUEST,
                "no_user",
                "name the user in the header x-user, in visible ASCII",
            ),
            Self::BadOrder(_) => (
                StatusCode::BAD_REQUEST,
                "bad_order",
                "send JSON such as {\"item\":\"tea\",\"takes_ms\":20}",
            ),
            Self::NoSuchPage => (
                StatusCode::NOT_FOUND,
                "no_such_page",
                "there are POST /orders, GET /orders/{user} and GET /metrics",
            ),
            Self::LaneFull => (
                StatusCode::TOO_MANY_REQUESTS,
                "lane_full",
                "wait for the answers of this user's orders, then send it again",
            ),
            Self::Overloaded => (
                StatusCode::TOO_MANY_REQUESTS,
                "overloaded",
                "send it again in a second",
            ),
            Self::TooLong => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too_long",
                "nothing was done: send it again",
            ),
            Self::Closing => (
                StatusCode::SERVICE_UNAVAILABLE,
                "closing",
                "nothing was done: send it to another server",
            ),
            Self::Unexpected => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "unexpected",
                "look at GET /orders/{user} before you send it again",
            ),
        }
    }
}

/// What the layers say.
impl From<BoxError> for Refusal {
    fn from(error: BoxError) -> Self {
        if error.is::<LaneFull>() {
            Self::LaneFull
        } else if error.is::<Overloaded>() {
            Self::Overloaded
        } else if error.is::<Elapsed>() {
            Self::TooLong
        } else if error.is::<Closed>() {
            Self::Closing
        } else {
            Self::Unexpected
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
