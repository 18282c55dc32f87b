//! Looks at servers: whether they can be used, and with which settings they may lose data.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use keylane_connector::{ErrorKind, Hazard, lock};
use redis::{Cmd, cmd};
use tokio::time::{Instant, sleep};

use crate::error::RedisError;
use crate::link::Link;

/// How often a server is looked at while it is in use. Tests wait for that.
const EVERY: Duration = match cfg!(test) {
    false => Duration::from_secs(300),
    true => Duration::from_millis(50),
};

/// When each server was looked at last: its connections share the looks.
static LOOKED: LazyLock<Mutex<HashMap<String, Instant>>> = LazyLock::new(Mutex::default);

/// Where a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Alone,
    /// A primary or a replica of a cluster.
    InCluster,
}

/// Looks at a server again and again: an operator may change its settings.
pub(crate) async fn inspect_at_intervals(link: &mut Link, name: &str) {
    loop {
        wait_for_next(name).await;
        // The next command shows a connection that is broken.
        let _ = inspect(link, name).await;
    }
}

/// Looks at the nodes of a cluster now, and again and again.
pub(crate) async fn inspect_cluster(link: &mut Link, name: &str) {
    loop {
        // The next command shows a connection that is broken.
        let _ = inspect_nodes(link, name).await;
        wait_for_next(name).await;
    }
}

/// Waits until a server is to be looked at, and no other connection has done it.
async fn wait_for_next(name: &str) {
    loop {
        sleep(EVERY).await;
        let looked_at = lock(&LOOKED).get(name).copied();
        if looked_at.is_none_or(|at| at.elapsed() >= EVERY) {
            return;
        }
    }
}

/// Looks at a server that was connected to, and warns of its settings.
///
/// # Errors
///
/// Returns an error if no command of this crate can succeed there.
pub(crate) async fn inspect(link: &mut Link, name: &str) -> Result<(), RedisError> {
    lock(&LOOKED).insert(name.to_owned(), Instant::now());
    let Some(info) = told(link.ask::<String>(&cmd("INFO")).await)? else {
        return Ok(());
    };
    usable(&info)?;
    let config = told(link.ask::<Config>(&persistence()).await)?.unwrap_or_default();
    warn(name, &info, &config, Place::Alone);
    Ok(())
}

/// Looks at the nodes of a cluster that are connected, and warns of their settings.
async fn inspect_nodes(link: &mut Link, name: &str) -> Result<(), RedisError> {
    lock(&LOOKED).insert(name.to_owned(), Instant::now());
    let infos = link.ask_nodes::<String>(cmd("INFO")).await?;
    let configs = link.ask_nodes::<Config>(persistence()).await?;
    let configs = HashMap::<_, _>::from_iter(configs);
    let unknown = Config::new();
    for (node, info) in infos {
        let config = configs.get(&node).unwrap_or(&unknown);
        warn(&node, &info, config, Place::InCluster);
    }
    Ok(())
}

type Config = HashMap<String, String>;

/// Returns the command that asks for the settings that `INFO` does not contain.
fn persistence() -> Cmd {
    let mut ask = cmd("CONFIG");
    ask.arg("GET").arg("appendfsync").arg("save");
    ask
}

fn warn(name: &str, info: &str, config: &Config, place: Place) {
    let of = |name: &str| config.get(name).map(String::as_str);
    for hazard in hazards(info, of("appendfsync"), of("save"), place) {
        hazard.warn(name);
    }
}

/// Returns the answer to a command that the user may have no right to: it is not needed.
fn told<T>(answer: Result<T, RedisError>) -> Result<Option<T>, RedisError> {
    match answer {
        Err(error) if error.breaks_connection() => Err(error),
        answer => Ok(answer.ok()),
    }
}

/// Returns a value of `INFO`.
fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find_map(|(found, value)| (found == name).then_some(value.trim()))
}

/// Returns whether it is a server of its own, a node of a cluster, or a Sentinel. Valkey has
/// another name for it.
fn mode(info: &str) -> Option<&str> {
    value(info, "redis_mode").or_else(|| value(info, "server_mode"))
}

fn usable(info: &str) -> Result<(), RedisError> {
    match mode(info) {
        Some("sentinel") => Err(RedisError::new(
            ErrorKind::Address,
            "this is a Sentinel, which has no data: use `Redis::sentinel`",
        )),
        _ => Ok(()),
    }
}

fn hazards(info: &str, appendfsync: Option<&str>, save: Option<&str>, place: Place) -> Vec<Hazard> {
    let hazard = |setting: &str, value: &str, remedy| Hazard {
        setting: setting.to_owned(),
        value: value.to_owned(),
        remedy,
    };
    let mut found = Vec::new();
    let is_limited = value(info, "maxmemory").is_some_and(|limit| limit != "0");
    if let Some(policy) = value(info, "maxmemory_policy")
        && is_limited
        && policy != "noeviction"
    {
        found.push(hazard(
            "maxmemory-policy",
            policy,
            "the server drops keys when its memory is full, among them messages and leases: set \
             `maxmemory-policy noeviction`",
        ));
    }
    match (value(info, "aof_enabled"), save) {
        (Some("0"), Some("")) => found.push(hazard(
            "appendonly",
            "no",
            "the server loses everything when it ends: set `appendonly yes`",
        )),
        (Some("0"), _) => found.push(hazard(
            "appendonly",
            "no",
            "the server loses what was written since its last snapshot when it crashes: set \
             `appendonly yes`",
        )),
        (Some(_), _) if appendfsync == Some("no") => found.push(hazard(
            "appendfsync",
            "no",
            "the server loses up to some 30 seconds when its machine crashes: set `appendfsync \
             everysec` or `always`",
        )),
        _ => {}
    }
    if place == Place::InCluster {
        return found;
    }
    if mode(info) == Some("cluster") {
        found.push(hazard(
            "cluster-enabled",
            "yes",
            "the server is a node of a cluster, and only keys in its slots can be used: use \
             `Redis::cluster`",
        ));
    }
    if let Some(role @ "slave") = value(info, "role") {
        found.push(hazard(
            "replicaof",
            role,
            "the server is a replica, which takes no writes: give the address of the primary",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAFE: &str = "# Server\r\nredis_mode:standalone\r\n# Memory\r\nmaxmemory:1000\r\n\
                        maxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\n\
                        # Replication\r\nrole:master\r\n";

    fn settings(info: &str, appendfsync: &str, save: &str) -> Vec<String> {
        let found = hazards(info, Some(appendfsync), Some(save), Place::Alone);
        found.into_iter().map(|hazard| hazard.setting).collect()
    }

    #[test]
    fn settings_that_lose_data_are_found() {
        assert_eq!(settings(SAFE, "everysec", ""), [""; 0]);
        let evicts = SAFE.replace("noeviction", "volatile-lru");
        assert_eq!(settings(&evicts, "always", ""), ["maxmemory-policy"]);
        let without_limit = evicts.replace("maxmemory:1000", "maxmemory:0");
        assert_eq!(settings(&without_limit, "always", ""), [""; 0]);
        let forgets = SAFE.replace("aof_enabled:1", "aof_enabled:0");
        assert_eq!(settings(&forgets, "everysec", "3600 1"), ["appendonly"]);
        assert_eq!(settings(&forgets, "everysec", ""), ["appendonly"]);
        assert_eq!(settings(SAFE, "no", ""), ["appendfsync"]);
        let replica = SAFE.replace("role:master", "role:slave");
        assert_eq!(settings(&replica, "always", ""), ["replicaof"]);
        let node = SAFE.replace("standalone", "cluster");
        assert_eq!(settings(&node, "always", ""), ["cluster-enabled"]);
        let valkey = node.replace("redis_mode", "server_mode");
        assert_eq!(settings(&valkey, "always", ""), ["cluster-enabled"]);
        // The user has no right to `CONFIG`.
        assert_eq!(hazards(SAFE, None, None, Place::Alone), []);
    }

    /// The client finds the primaries by itself.
    #[test]
    fn a_replica_in_a_cluster_is_no_hazard_and_its_settings_are() {
        let node = SAFE.replace("standalone", "cluster");
        let node = node.replace("role:master", "role:slave");
        let found = |info: &str| hazards(info, Some("always"), Some(""), Place::InCluster);
        assert_eq!(found(&node), []);
        let forgets = node.replace("aof_enabled:1", "aof_enabled:0");
        let found = found(&forgets);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].setting, "appendonly");
    }

    #[test]
    fn a_sentinel_is_refused() {
        usable(SAFE).expect("a server");
        let error = usable(&SAFE.replace("standalone", "sentinel")).expect_err("no server");
        assert!(error.to_string().contains("Sentinel"), "{error}");
        assert!(!error.is_retryable());
    }
}
