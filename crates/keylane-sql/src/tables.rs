//! The names of the tables.

use crate::error::NameError;

/// The longest name that both databases accept.
const MOST: usize = 63;

/// The longest name of a table without its prefix.
const LONGEST_TABLE: usize = 16;

/// The names of the tables: a prefix, and their schema if it is not that of the connection.
///
/// # Examples
///
/// ```
/// use keylane_sql::Tables;
///
/// let tables = Tables::new().prefix("billing_")?.schema("queues")?;
/// assert!(Tables::new().prefix("billing\"; drop table users; --").is_err());
/// # let _ = tables;
/// # Ok::<(), keylane_sql::error::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tables {
    prefix: String,
    schema: Option<String>,
}

/// The quotes around a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quote {
    Postgres,
    MySql,
}

impl Tables {
    /// Returns the default names: the prefix `keylane_`, in the schema of the connection.
    pub fn new() -> Self {
        Self {
            prefix: "keylane_".to_owned(),
            schema: None,
        }
    }

    /// Sets another prefix. Tables with different prefixes share nothing.
    ///
    /// # Errors
    ///
    /// Returns [`NameError`] unless the prefix consists of `A-Z`, `a-z`, `0-9` and `_`, begins with
    /// no digit, and has at most 47 bytes.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, NameError> {
        self.prefix = checked(prefix.into(), MOST - LONGEST_TABLE)?;
        Ok(self)
    }

    /// Sets another schema, which must exist: on MySQL and MariaDB, another database.
    ///
    /// # Errors
    ///
    /// Returns the same error as [`prefix`](Self::prefix), but allows 63 bytes.
    pub fn schema(mut self, schema: impl Into<String>) -> Result<Self, NameError> {
        self.schema = Some(checked(schema.into(), MOST)?);
        Ok(self)
    }

    /// Returns the text of a statement with each `{table}` replaced by the name of that table, and
    /// each `{.index}` by the name of that index, which has no schema of its own.
    pub(crate) fn statement(&self, template: &str, quote: Quote) -> String {
        let mut text = String::with_capacity(template.len() * 2);
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (table, after) = after.split_once('}').expect("each { has its }");
            text.push_str(before);
            self.push_name(&mut text, table, quote);
            rest = after;
        }
        text.push_str(rest);
        text
    }

    /// Returns the name of a table without quotes, as MySQL and MariaDB list it.
    pub(crate) fn listed(&self, table: &str) -> String {
        format!("{}{table}", self.prefix)
    }

    /// Returns the schema, if it is not that of the connection.
    pub(crate) fn listed_schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Returns the name of a table for people.
    pub(crate) fn named(&self, table: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{schema}.{}", self.listed(table)),
            None => self.listed(table),
        }
    }

    /// Returns the name of the channel on which PostgreSQL announces new messages.
    pub(crate) fn channel(&self) -> String {
        format!("{}inbox", self.prefix)
    }

    /// Returns the name of the channel on which PostgreSQL announces changes of elections.
    pub(crate) fn election_channel(&self) -> String {
        format!("{}elections", self.prefix)
    }

    /// Returns the name of the lock that is held while the tables are created.
    pub(crate) fn lock_name(&self) -> String {
        let schema = self.schema.as_deref().unwrap_or_default();
        format!("keylane:{schema}:{}", self.prefix)
    }

    fn push_name(&self, text: &mut String, table: &str, quote: Quote) {
        let (table, is_in_schema) = match table.strip_prefix('.') {
            Some(index) => (index, false),
            None => (table, true),
        };
        debug_assert!(table.len() <= LONGEST_TABLE, "{table}");
        let quote = match quote {
            Quote::Postgres => '"',
            Quote::MySql => '`',
        };
        if let Some(schema) = self.schema.as_ref().filter(|_| is_in_schema) {
            text.extend([quote]);
            text.push_str(schema);
            text.extend([quote, '.']);
        }
        text.extend([quote]);
        text.push_str(&self.prefix);
        text.push_str(table);
        text.extend([quote]);
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

fn checked(name: String, most: usize) -> Result<String, NameError> {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let mut bytes = name.bytes();
    let begins = bytes.next().is_some_and(is_letter);
    let goes_on = bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit());
    match begins && goes_on && name.len() <= most {
        true => Ok(name),
        false => Err(NameError { name, most }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact_or_refused() {
        let long = "a".repeat(47);
        for name in ["a", "_", "Keylane_", "k9_", &long] {
            assert!(Tables::new().prefix(name).is_ok(), "{name}");
        }
        let hostile = [
            "",
            "9a",
            "a-b",
            "a b",
            "a.b",
            "a\"b",
            "a`b",
            "a'b",
            "a;b",
            "a\0",
            "\u{e4}",
            "a{b}",
            "x\"; drop table users; --",
        ];
        for name in hostile {
            let refused = Tables::new().prefix(name).unwrap_err();
            assert!(Tables::new().schema(name).is_err());
            assert!(!refused.to_string().contains('\0'), "{refused}");
        }
        assert!(Tables::new().prefix(long + "a").is_err());
        assert!(Tables::new().schema("a".repeat(63)).is_ok());
        assert!(Tables::new().schema("a".repeat(64)).is_err());
    }

    #[test]
    fn statements_have_quoted_names() {
        let tables = Tables::new();
        let text = "select 1 from {leases} where x = (select 2 from {tokens})";
        assert_eq!(
            tables.statement(text, Quote::Postgres),
            "select 1 from \"keylane_leases\" where x = (select 2 from \"keylane_tokens\")"
        );
        let tables = tables.schema("queues").unwrap().prefix("b_").unwrap();
        assert_eq!(
            tables.statement("delete from {leases}", Quote::MySql),
            "delete from `queues`.`b_leases`"
        );
        assert_eq!(
            tables.statement("create index {.ready} on {lanes}", Quote::Postgres),
            "create index \"b_ready\" on \"queues\".\"b_lanes\""
        );
    }
}
