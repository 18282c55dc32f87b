//! Prints results, as text or as JSON.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use keylane_inbox::{Header, Letter, Stats, StoredMessage};
use serde_json::{Map, Value, json};

use crate::text::{escape, unquoted};

pub(crate) struct Output {
    json: bool,
    full: bool,
    out: io::Stdout,
}

impl Output {
    pub(crate) fn new(json: bool, full: bool) -> Self {
        Self {
            json,
            // A program that reads JSON would not notice a cut.
            full: full || json,
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
    pub(crate) fn letter_row(&mut self, letter: &Letter) -> io::Result<()> {
        if self.json {
            let fields = self.letter_fields(letter);
            return writeln!(self.out, "{}", Value::Object(fields));
        }
        let error = unquoted(&letter.error, self.full);
        writeln!(
            self.out,
            "{:>10}  {}  {:>3} attempts  {:<11}  key {:<20}  {error}",
            letter.message.sequence,
            time(letter.dead_lettered_at),
            letter.attempts,
            letter.kind.to_string(),
            self.quoted(&letter.message.key),
        )
    }

    /// Prints a message of a list.
    pub(crate) fn message_row(&mut self, message: &StoredMessage) -> io::Result<()> {
        if self.json {
            let fields = self.message_fields(message);
            return writeln!(self.out, "{}", Value::Object(fields));
        }
        writeln!(
            self.out,
            "{:>10}  {}  {:>9} bytes  key {:<20}  {}",
            message.sequence,
            time(message.accepted_at),
            message.payload.len(),
            self.quoted(&message.key),
            self.quoted(&message.payload),
        )
    }

    /// Prints all of a letter.
    pub(crate) fn letter(&mut self, letter: &Letter) -> io::Result<()> {
        let fields = self.letter_fields(letter);
        self.fields(fields)
    }

    /// Prints all of a message.
    pub(crate) fn message(&mut self, message: &StoredMessage) -> io::Result<()> {
        let fields = self.message_fields(message);
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

    fn letter_fields(&self, letter: &Letter) -> Map<String, Value> {
        let mut fields = self.message_fields(&letter.message);
        for (name, value) in [
            ("attempts", json!(letter.attempts)),
            ("kind", json!(letter.kind.to_string())),
            ("error", json!(unquoted(&letter.error, self.full))),
            ("dead_lettered_at", json!(time(letter.dead_lettered_at))),
        ] {
            fields.insert(name.into(), value);
        }
        fields
    }

    fn message_fields(&self, message: &StoredMessage) -> Map<String, Value> {
        let id = message.id.as_ref();
        let header = |header: &Header| {
            json!({
                "name": escape(header.name.as_bytes(), self.full),
                "value": escape(&header.value, self.full),
            })
        };
        let mut fields = Map::new();
        for (name, value) in [
            ("sequence", json!(message.sequence)),
            ("accepted_at", json!(time(message.accepted_at))),
            ("key", json!(escape(&message.key, self.full))),
            ("id", json!(id.map(|id| escape(id.as_bytes(), true)))),
            ("version", json!(message.version)),
            (
                "headers",
                Value::Array(message.headers.iter().map(header).collect()),
            ),
            ("payload_bytes", json!(message.payload.len())),
            ("payload", json!(escape(&message.payload, self.full))),
        ] {
            fields.insert(name.into(), value);
        }
        fields
    }

    fn quoted(&self, bytes: &[u8]) -> String {
        format!("\"{}\"", escape(bytes, self.full))
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
