//! The token of a console.

use std::path::Path;
use std::{env, fmt, fs};

use super::error::ConsoleError;

/// The variable that has the token.
const TOKEN: &str = "KEYLANE_CONSOLE_TOKEN";

/// A token, which no output shows.
pub(crate) struct Token(pub(crate) String);

impl Token {
    /// Reads it from the file, or from the variable if there is no file. White space around it does
    /// not count.
    pub(crate) fn read(file: Option<&Path>) -> Result<Option<Self>, ConsoleError> {
        let text = match file {
            Some(path) => {
                Some(
                    fs::read_to_string(path).map_err(|error| ConsoleError::TokenFile {
                        path: path.to_owned(),
                        why: error.to_string(),
                    })?,
                )
            }
            None => env::var(TOKEN).ok(),
        };
        let text = text.map(|text| text.trim().to_owned());
        Ok(text.filter(|text| !text.is_empty()).map(Self))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
