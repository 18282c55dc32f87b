//! One store of letters of a console.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::json;

use super::row::{LetterRow, MOST_CHARS, text};
use crate::console::{Console, ConsoleError, encoded};
use crate::failure::Failure;
use crate::text::Bytes;

/// A store of letters.
pub(super) struct Shelf<'a> {
    console: &'a Console,
    name: String,
}

#[derive(Deserialize)]
struct About {
    letters: Vec<String>,
}

#[derive(Deserialize)]
struct Page {
    letters: Vec<LetterRow>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Acted {
    letters: u64,
}

impl<'a> Shelf<'a> {
    /// Finds the store with this name; without a name, the only one.
    pub(super) async fn open(console: &'a Console, name: Option<String>) -> Result<Self, Failure> {
        let about: About = console.get("about").await?;
        let name = chosen(name, about.letters).map_err(Failure::Other)?;
        Ok(Self { console, name })
    }

    /// The letters behind one, from one that looks at those which a filter chooses.
    pub(super) fn pages(&self, filter: String, after: Option<String>) -> Pages<'_> {
        Pages {
            shelf: self,
            filter,
            after,
            ended: false,
        }
    }

    pub(super) async fn letter(&self, id: &str) -> Result<Option<LetterRow>, ConsoleError> {
        let (name, id) = (encoded(&self.name), encoded(id));
        let path = format!("letter?name={name}&id={id}");
        match self.console.get(&path).await {
            Ok(letter) => Ok(Some(letter)),
            Err(error) if error.is_unknown_letter() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Does it to these letters. Returns how many of them were letters.
    pub(super) async fn act(&self, action: &str, ids: &[String]) -> Result<u64, ConsoleError> {
        let body = json!({ "name": self.name, "action": action, "ids": ids });
        let acted: Acted = self.console.post("letters/act", &body).await?;
        Ok(acted.letters)
    }
}

/// The name of the store, or what to do.
fn chosen(name: Option<String>, mut all: Vec<String>) -> Result<String, String> {
    let names = all.iter().map(|name| format!("{name:?}"));
    let names = names.collect::<Vec<_>>().join(", ");
    match name {
        _ if all.is_empty() => Err(
            "the console shows no letters: give it a store with `Builder::letters` in the service"
                .to_owned(),
        ),
        Some(name) if all.contains(&name) => Ok(name),
        Some(name) => Err(format!(
            "the console has no letters {name:?}: name one of {names} with --letters"
        )),
        None if all.len() == 1 => Ok(all.remove(0)),
        None => Err(format!(
            "the console has several stores of letters: name one of {names} with --letters"
        )),
    }
}

/// The letters of a store, page by page.
pub(super) struct Pages<'a> {
    shelf: &'a Shelf<'a>,
    filter: String,
    after: Option<String>,
    ended: bool,
}

impl Pages<'_> {
    /// The next page, which may be empty; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<LetterRow>>, ConsoleError> {
        if self.ended {
            return Ok(None);
        }
        let (name, filter) = (encoded(&self.shelf.name), encoded(&self.filter));
        let after = self.after.as_deref().map(encoded);
        let after = after.map_or_else(String::new, |after| format!("&after={after}"));
        let path = format!("letters?name={name}&filter={filter}{after}");
        let page: Page = self.shelf.console.get(&path).await?;
        self.ended = page.next.is_none();
        self.after = page.next;
        Ok(Some(page.letters))
    }
}

/// Which letters.
pub(super) enum Wanted {
    These(Vec<String>),
    All,
    OfKey(Vec<u8>),
    Before(SystemTime),
}

impl Wanted {
    pub(super) fn all_or_of(key: Option<Bytes>) -> Result<Self, Failure> {
        match key {
            None => Ok(Self::All),
            // Only the start of a longer key is shown, and other keys may have the same.
            Some(Bytes(key)) if text(&key).chars().count() >= MOST_CHARS => Err(Failure::Other(
                format!("a console shows {MOST_CHARS} characters of a key: name the ids instead"),
            )),
            Some(Bytes(key)) => Ok(Self::OfKey(key)),
        }
    }

    pub(super) fn older_than(time: Duration) -> Self {
        let until = SystemTime::now().checked_sub(time);
        Self::Before(until.unwrap_or(SystemTime::UNIX_EPOCH))
    }

    /// A filter that chooses all of them, and maybe others.
    pub(super) fn filter(&self) -> String {
        match self {
            Self::OfKey(key) => text(key),
            _ => String::new(),
        }
    }

    pub(super) fn has(&self, letter: &LetterRow) -> bool {
        match self {
            Self::These(ids) => ids.contains(&letter.id),
            Self::All => true,
            Self::OfKey(key) => letter.is_of(key),
            Self::Before(until) => letter.is_before(*until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_unless_there_is_one() {
        let all = || vec!["orders".to_owned(), "mail".to_owned()];
        assert_eq!(chosen(None, all()[..1].to_vec()), Ok("orders".into()));
        assert_eq!(chosen(Some("mail".into()), all()), Ok("mail".into()));
        for (name, all) in [(None, all()), (Some("post".into()), all())] {
            let why = chosen(name, all).unwrap_err();
            assert!(why.contains(r#""orders", "mail" with --letters"#), "{why}");
        }
        assert!(
            chosen(None, vec![])
                .unwrap_err()
                .contains("Builder::letters")
        );
    }
}
