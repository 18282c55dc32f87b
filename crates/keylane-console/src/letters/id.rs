//! Ids of letters as text. Pure.

use std::fmt::Display;
use std::str::FromStr;

use keylane::error::BoxError;

use super::store::NoId;

/// Reads an id.
pub(super) fn id<T: FromStr<Err: Display>>(text: &str) -> Result<T, BoxError> {
    text.parse().map_err(|why: T::Err| {
        let (text, why) = (text.to_owned(), why.to_string());
        NoId { text, why }.into()
    })
}

/// Reads ids.
pub(super) fn ids<T: FromStr<Err: Display>>(texts: &[String]) -> Result<Vec<T>, BoxError> {
    texts.iter().map(|text| id(text)).collect()
}
