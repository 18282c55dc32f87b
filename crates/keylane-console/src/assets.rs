//! The page: three files and an icon, built in, and nothing from elsewhere.

use axum::extract::OriginalUri;
use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Stands in the page for the path from the page to its files.
const BASE: &str = "{base}";

/// The page. Its addresses are relative, wherever the console is nested: at `/ops/console` its
/// files are in `./console/`, and at `/ops/console/` in `./`.
pub(crate) async fn page(OriginalUri(uri): OriginalUri) -> Response {
    let page = include_str!("../page/index.html").replace(BASE, &base(uri.path()));
    file("text/html; charset=utf-8", page)
}

fn base(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-._~%".contains(it);
    match last {
        "" => "./".to_owned(),
        // In an attribute: what is not plain is spelled out, so that no path becomes markup.
        last => {
            let spelled = last.chars().map(|it| match is_plain(it) {
                true => it.to_string(),
                false => format!("&#{};", u32::from(it)),
            });
            format!("./{}/", spelled.collect::<String>())
        }
    }
}

pub(crate) async fn style() -> Response {
    file(
        "text/css; charset=utf-8",
        include_str!("../page/app.css").to_owned(),
    )
}

pub(crate) async fn script() -> Response {
    file(
        "text/javascript; charset=utf-8",
        include_str!("../page/app.js").to_owned(),
    )
}

pub(crate) async fn icon() -> Response {
    file("image/svg+xml", include_str!("../page/icon.svg").to_owned())
}

fn file(content_type: &'static str, text: String) -> Response {
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_beside_the_page_or_below_it() {
        assert_eq!(base("/"), "./");
        assert_eq!(base("/ops/console/"), "./");
        assert_eq!(base("/ops/console"), "./console/");
        assert_eq!(base("/a:b"), "./a&#58;b/");
        assert_eq!(base("/\"><script>"), "./&#34;&#62;&#60;script&#62;/");
    }
}
