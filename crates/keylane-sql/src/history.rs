//! The name that the servers give their history: of what they have committed, one after the other.

use std::collections::HashMap;

use sqlx::{MySql, Row};

use crate::connections::Connections;
use crate::error::SqlError;
use crate::link::Lent;

/// The history of PostgreSQL, an expression: the cluster, and its timeline, which changes with each
/// promotion. Every role may read it. A standby has none.
pub(crate) const OF_POSTGRES: &str = "((select system_identifier from pg_control_system()) || '/'
    || left(pg_walfile_name(pg_current_wal_lsn()), 8))";

/// The name that the servers of MySQL and MariaDB give their history: an expression.
///
/// A promoted replica is another server than its source. The servers of a cluster with several
/// writable servers share one history, and so the name of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct History(String);

/// MySQL has no `wsrep_on`, and MariaDB no `server_uuid`.
const ASK: &str = "show global variables where variable_name in
    ('server_uuid', 'wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode')";

impl History {
    pub(crate) async fn of(pool: &Connections<MySql>) -> Result<Self, SqlError> {
        let mut connection = Lent::from(pool).await?;
        let rows = sqlx::raw_sql(ASK).fetch_all(connection.get()).await;
        let set: HashMap<String, String> = (connection.end(rows)?.iter())
            .map(|row| (row.get::<String, _>(0).to_lowercase(), row.get(1)))
            .collect();
        let is = |name: &str, value: &str| {
            let set = set.get(name);
            set.is_some_and(|set| set.eq_ignore_ascii_case(value))
        };
        let server = "@@server_id, '@', @@hostname, ':', @@port";
        Ok(Self(if is("wsrep_on", "ON") {
            "concat('cluster ', @@wsrep_cluster_name)".to_owned()
        } else if is("group_replication_single_primary_mode", "OFF")
            && set
                .get("group_replication_group_name")
                .is_some_and(|name| !name.is_empty())
        {
            "concat('group ', @@group_replication_group_name)".to_owned()
        } else if set.contains_key("server_uuid") {
            format!("concat({server}, '/', @@server_uuid)")
        } else {
            format!("concat({server})")
        }))
    }

    /// Returns the name of the history of the server that executes it.
    pub(crate) fn here(&self) -> &str {
        &self.0
    }
}
