//! Ids of letters as text. Pure.

use std::fmt::Display;
use std::str::FromStr;

use keylane::error::BoxError;

/// Reads an id.
pub(super) fn id<T: FromStr<Err: Display>>(text: &str) -> Result<T, BoxError> {
    text.parse().map_err(|why| {
        format!("{text:?} is not the id of a letter here, take one of the list: {why}").into()
    })
}

/// Reads ids.
pub(super) fn ids<T: FromStr<Err: Display>>(texts: &[String]) -> Result<Vec<T>, BoxError> {
    texts.iter().map(|text| id(text)).collect()
}
