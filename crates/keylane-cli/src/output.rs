//! Prints results, as text or as JSON.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use keylane_inbox::{Letter, Stats, StoredMessage};
use serde_json::{Map, Value, json};

use crate::args::Form;
use crate::text::{escape, unquoted};

/// A message or a letter, of an inbox or of a console. `None` is what its store does not say.
pub(crate) struct Shown<'a> {
    /// A number, or the id of a letter that has none.
    pub(crate) sequence: Value,
    pub(crate) accepted_at: Option<SystemTime>,
    pub(crate) key: Option<Cow<'a, [u8]>>,
    pub(crate) id: Option<Cow<'a, [u8]>>,
    pub(crate) version: Option<u64>,
    pub(crate) headers: Vec<(&'a str, Cow<'a, [u8]>)>,
    pub(crate) payload: Cow<'a, [u8]>,
    pub(crate) payload_bytes: usize,
    /// Whether the payload is only the start of it.
    pub(crate) payload_is_cut: bool,
    pub(crate) dead: Option<Dead<'a>>,
}

/// What a letter has more.
pub(crate) struct Dead<'a> {
    pub(crate) attempts: u32,
    pub(crate) kind: Cow<'a, str>,
    pub(crate) error: &'a str,
    pub(crate) at: Option<SystemTime>,
}

impl<'a> From<&'a StoredMessage> for Shown<'a> {
    fn from(message: &'a StoredMessage) -> Self {
        let headers = message.headers.iter();
        Self {
            sequence: json!(message.sequence),
            accepted_at: Some(message.accepted_at),
            key: Some(Cow::Borrowed(&message.key)),
            id: message.id.as_ref().map(|id| id.as_bytes().into()),
            version: message.version,
            headers: headers
                .map(|header| (&*header.name, Cow::Borrowed(&header.value[..])))
                .collect(),
            payload: Cow::Borrowed(&message.payload),
            payload_bytes: message.payload.len(),
            payload_is_cut: false,
            dead: None,
        }
    }
}

impl<'a> From<&'a Letter> for Shown<'a> {
    fn from(letter: &'a Letter) -> Self {
        Self {
            dead: Some(Dead {
                attempts: letter.attempts,
                kind: Cow::Owned(letter.kind.to_string()),
                error: &letter.error,
                at: Some(letter.dead_lettered_at),
            }),
            ..Self::from(&letter.message)
        }
    }
}

pub(crate) struct Output {
    json: bool,
    full: bool,
    out: io::Stdout,
}

impl Output {
    pub(crate) fn new(form: &Form) -> Self {
        Self {
            json: form.json,
            // A program that reads JSON would not notice a cut.
            full: form.full || form.json,
            out: io::stdout(),
        }
    }

    /// Prints what was done.
    pub(crate) fn done(&mut self, what: &str, fields: Value) -> io::Result<()> {
        match self.json {
            true => writeln!(self.out, "{fields}"),
            false => writeln!(self.out, "{what}"),
        }
    }

    /// Prints a letter of a list.
    pub(crate) fn letter_row(&mut self, letter: &Shown<'_>) -> io::Result<()> {
        let dead = letter.dead.as_ref();
        let Some(dead) = dead.filter(|_| !self.json) else {
            let fields = self.map(letter);
            return writeln!(self.out, "{}", Value::Object(fields));
        };
        writeln!(
            self.out,
            "{:>10}  {:<20}  {:>3} attempts  {:<11}  key {:<20}  {}",
            plain(&letter.sequence),
            dead.at.map_or_else(|| "-".to_owned(), time),
            dead.attempts,
            unquoted(&dead.kind, self.full),
            self.key(letter),
            unquoted(dead.error, self.full),
        )
    }

    /// Prints a message of a list.
    pub(crate) fn message_row(&mut self, message: &Shown<'_>) -> io::Result<()> {
        if self.json {
            let fields = self.map(message);
            return writeln!(self.out, "{}", Value::Object(fields));
        }
        writeln!(
            self.out,
            "{:>10}  {:<20}  {:>9} bytes  key {:<20}  {}",
            plain(&message.sequence),
            message.accepted_at.map_or_else(|| "-".to_owned(), time),
            message.payload_bytes,
            self.key(message),
            self.quoted(&message.payload),
        )
    }

    /// Prints all of a letter or a message.
    pub(crate) fn fields_of(&mut self, shown: &Shown<'_>) -> io::Result<()> {
        let fields = self.map(shown);
        self.fields(fields)
    }

    pub(crate) fn stats(&mut self, stats: &Stats) -> io::Result<()> {
        let fields = json!({
            "waiting": stats.waiting,
            "waiting_bytes": stats.waiting_bytes,
            "oldest_sequence": stats.oldest,
            "last_sequence": stats.tail,
            "letters": stats.letters,
            "letters_bytes": stats.letters_bytes,
            "ids_remembered": stats.known,
            "versions": stats.versions,
            "live_bytes": stats.live_bytes,
            "file_bytes": stats.file_bytes,
        });
        match fields {
            Value::Object(fields) => self.fields(fields),
            _ => unreachable!("it is written as an object"),
        }
    }

    /// Prints one object a line, or one field a line.
    fn fields(&mut self, fields: Map<String, Value>) -> io::Result<()> {
        if self.json {
            return writeln!(self.out, "{}", Value::Object(fields));
        }
        for (name, value) in fields {
            let name = name.replace('_', " ");
            match value {
                Value::Null => writeln!(self.out, "{name:<18} -")?,
                Value::String(text) => writeln!(self.out, "{name:<18} {text}")?,
                other => writeln!(self.out, "{name:<18} {other}")?,
            }
        }
        Ok(())
    }

    fn map(&self, it: &Shown<'_>) -> Map<String, Value> {
        let header = |(name, value): &(&str, Cow<'_, [u8]>)| {
            json!({
                "name": escape(name.as_bytes(), self.full),
                "value": escape(value, self.full),
            })
        };
        let mut fields = Map::new();
        let mut put = |name: &str, value| _ = fields.insert(name.to_owned(), value);
        let (key, id) = (it.key.as_ref(), it.id.as_ref());
        put("sequence", it.sequence.clone());
        put("accepted_at", json!(it.accepted_at.map(time)));
        put("key", json!(key.map(|key| escape(key, self.full))));
        put("id", json!(id.map(|id| escape(id, true))));
        put("version", json!(it.version));
        put("headers", it.headers.iter().map(header).collect());
        put("payload_bytes", json!(it.payload_bytes));
        put("payload", json!(escape(&it.payload, self.full)));
        put("payload_is_cut", json!(it.payload_is_cut));
        if let Some(dead) = &it.dead {
            put("attempts", json!(dead.attempts));
            put("kind", json!(unquoted(&dead.kind, self.full)));
            put("error", json!(unquoted(dead.error, self.full)));
            put("dead_lettered_at", json!(dead.at.map(time)));
        }
        fields
    }

    fn key(&self, it: &Shown<'_>) -> String {
        let key = it.key.as_ref();
        key.map_or_else(|| "-".to_owned(), |key| self.quoted(key))
    }

    fn quoted(&self, bytes: &[u8]) -> String {
        format!("\"{}\"", escape(bytes, self.full))
    }
}

/// A number, or a text from elsewhere.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => unquoted(text, true),
        other => other.to_string(),
    }
}

/// Formats a time in UTC, as in RFC 3339.
fn time(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Converts days since 1970 to a date, by Hinnant's `civil_from_days`: its years begin in March, so
/// that the leap day is the last day.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(time(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
