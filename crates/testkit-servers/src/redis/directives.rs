//! The directives of a server, from its settings and its place.

use std::path::Path;

use crate::redis::Fsync;
use crate::redis::builder::RedisBuilder;

/// The place of one server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) port: u16,
    /// The port for the other nodes, if it belongs to a cluster.
    pub(super) bus: Option<u16>,
    pub(super) data: &'a Path,
}

/// After how many milliseconds a node that does not answer counts as failed, and after twice as
/// many as alive again. With the server's default a test would wait 15 s.
const NODE_TIMEOUT: &str = "3000";

/// Returns all arguments of the server.
pub(super) fn arguments(settings: &RedisBuilder, place: Place<'_>) -> Vec<String> {
    let mut directives = own(settings, place);
    let wins = |name: &str| {
        let mut set = settings.arguments.iter();
        set.any(|(other, _)| other.eq_ignore_ascii_case(name))
    };
    directives.retain(|(name, _)| !wins(name));
    let theirs = settings.arguments.iter().map(|(name, value)| {
        let words = value.split_whitespace().map(str::to_owned);
        (name.as_str(), words.collect())
    });
    directives.extend(theirs);
    let words = directives.into_iter().flat_map(|(name, mut values)| {
        if values.is_empty() {
            values.push(String::new());
        }
        [format!("--{name}")].into_iter().chain(values)
    });
    words.collect()
}

/// Returns the directives of this module.
fn own<'a>(settings: &RedisBuilder, place: Place<'_>) -> Vec<(&'a str, Vec<String>)> {
    let mut directives = Vec::new();
    let mut set = |name, value: &str| directives.push((name, vec![value.to_owned()]));
    set("bind", "127.0.0.1");
    set("port", &place.port.to_string());
    set("dir", &place.data.to_string_lossy());
    set("daemonize", "no");
    // To the standard output.
    set("logfile", "");
    // No snapshots: the append-only file has all data.
    set("save", "");
    set("appendonly", "yes");
    set(
        "appendfsync",
        match settings.fsync {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
            Fsync::No => "no",
        },
    );
    // It would wait 5 s for more replicas.
    set("repl-diskless-sync-delay", "0");
    if let Some(password) = &settings.password {
        set("requirepass", password);
    }
    let primary = settings.primary.as_ref();
    // A primary that is started again may become the replica of one with the same password.
    let theirs = primary.and_then(|primary| primary.password.as_ref());
    if let Some(password) = theirs.or(settings.password.as_ref()) {
        set("masterauth", password);
    }
    if let Some(bus) = place.bus {
        set("cluster-enabled", "yes");
        set("cluster-port", &bus.to_string());
        set("cluster-node-timeout", NODE_TIMEOUT);
    }
    if let Some(primary) = primary {
        let address = ["127.0.0.1".to_owned(), primary.port.to_string()];
        directives.push(("replicaof", address.to_vec()));
    }
    directives
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::RedisKind;
    use crate::redis::builder::Primary;

    fn line(settings: &RedisBuilder, bus: Option<u16>) -> String {
        let data = Path::new("/data");
        let place = Place { port: 7, bus, data };
        arguments(settings, place).join(" ")
    }

    #[test]
    fn a_server_is_durable_and_for_this_machine_alone() {
        let line = line(&RedisBuilder::new(RedisKind::Redis7), None);
        assert_eq!(
            line,
            "--bind 127.0.0.1 --port 7 --dir /data --daemonize no --logfile  --save  \
             --appendonly yes --appendfsync always --repl-diskless-sync-delay 0"
        );
    }

    #[test]
    fn an_argument_wins_and_may_have_several_words() {
        let settings = RedisBuilder::new(RedisKind::Redis8)
            .argument("AppendFsync", "no")
            .argument("client-output-buffer-limit", "normal 1 2 3")
            .argument("save", "");
        let line = line(&settings, None);
        assert!(!line.contains("--appendfsync"), "{line}");
        let theirs = "--AppendFsync no --client-output-buffer-limit normal 1 2 3 --save ";
        assert!(line.ends_with(theirs), "{line}");
    }

    #[test]
    fn a_replica_knows_the_password_of_its_primary() {
        let mut settings = RedisBuilder::new(RedisKind::Valkey9).password("own");
        assert!(line(&settings, None).contains("--requirepass own --masterauth own"));
        settings.primary = Some(Primary {
            port: 8,
            password: Some("theirs".to_owned()),
        });
        let line = line(&settings, Some(9));
        assert!(line.contains("--requirepass own --masterauth theirs"));
        assert!(line.contains("--cluster-port 9"));
        assert!(line.ends_with("--replicaof 127.0.0.1 8"), "{line}");
    }
}
