//! The page: three files and an icon, built in, and nothing from elsewhere.

use axum::http::header;
use axum::response::{IntoResponse, Response};

pub(crate) async fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("page/index.html"))
}

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("page/app.css"))
}

pub(crate) async fn script() -> Response {
    file(
        "text/javascript; charset=utf-8",
        include_str!("page/app.js"),
    )
}

pub(crate) async fn icon() -> Response {
    file("image/svg+xml", include_str!("page/icon.svg"))
}

fn file(content_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}
