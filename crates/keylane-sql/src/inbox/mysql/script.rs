//! Statements that go to the server together.

use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::tables::{Quote, Tables};

/// The length at which a text is sent. Servers refuse texts that are too long.
const LONGEST: usize = 1 << 20;

/// Statements for one connection, which go to the server in as few texts as possible, in their
/// order.
pub(super) struct Script<'a> {
    pub(super) connection: &'a mut MySqlConnection,
    tables: &'a Tables,
    text: String,
    rows: Vec<MySqlRow>,
}

impl<'a> Script<'a> {
    pub(super) fn new(connection: &'a mut MySqlConnection, tables: &'a Tables) -> Self {
        Self {
            connection,
            tables,
            text: String::new(),
            rows: Vec::new(),
        }
    }

    /// Adds one statement, or several.
    pub(super) async fn add(&mut self, template: &str) -> Result<(), sqlx::Error> {
        if template.is_empty() {
            return Ok(());
        }
        let statement = self.tables.statement(template, Quote::MySql);
        if self.text.len() + statement.len() > LONGEST {
            self.send().await?;
        }
        if !self.text.is_empty() {
            self.text.push_str(";\n");
        }
        self.text.push_str(&statement);
        Ok(())
    }

    /// Runs the added statements. Returns the rows of all results since the last run.
    pub(super) async fn run(&mut self) -> Result<Vec<MySqlRow>, sqlx::Error> {
        self.send().await?;
        Ok(std::mem::take(&mut self.rows))
    }

    async fn send(&mut self) -> Result<(), sqlx::Error> {
        if self.text.is_empty() {
            return Ok(());
        }
        let text = AssertSqlSafe(std::mem::take(&mut self.text));
        let rows = sqlx::raw_sql(text).fetch_all(&mut *self.connection).await?;
        self.rows.extend(rows);
        Ok(())
    }
}
