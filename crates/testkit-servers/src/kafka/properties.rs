//! The file of properties of a node.

use std::path::Path;

/// The name of the listener for clients of `bootstrap`, and for the other nodes.
const DIRECT: &str = "DIRECT";

/// The name of the listener behind the proxy.
const PROXIED: &str = "PROXIED";

/// The name of the listener of the controller.
const CONTROLLER: &str = "CONTROLLER";

/// The ports of a node, on 127.0.0.1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) direct: u16,
    /// The port of the listener to which the proxy forwards.
    pub(super) behind_proxy: u16,
    /// The port of the proxy.
    pub(super) proxied: u16,
    pub(super) controller: u16,
}

/// A listener that a test has added.
#[derive(Debug, Clone)]
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) protocol: &'static str,
    pub(super) port: u16,
}

/// Returns all settings of node `node` of a cluster with these ports. A later line overrides an
/// earlier one, so `extra` comes last.
pub(super) fn properties(
    node: usize,
    cluster: &[Ports],
    added: &[Listener],
    data: &Path,
    extra: &[(String, String)],
) -> String {
    let ports = cluster[node];
    let address = |name: &str, port| format!("{name}://127.0.0.1:{port}");
    let mut listeners = vec![
        address(DIRECT, ports.direct),
        address(PROXIED, ports.behind_proxy),
        address(CONTROLLER, ports.controller),
    ];
    let mut advertised = vec![
        address(DIRECT, ports.direct),
        address(PROXIED, ports.proxied),
    ];
    let voters = cluster.iter().enumerate();
    let voters = voters.map(|(id, ports)| format!("{id}@127.0.0.1:{}", ports.controller));
    let protocols = [DIRECT, PROXIED, CONTROLLER].map(|name| format!("{name}:PLAINTEXT"));
    let mut protocols = protocols.to_vec();
    for Listener {
        name,
        protocol,
        port,
    } in added
    {
        listeners.push(address(name, *port));
        advertised.push(address(name, *port));
        protocols.push(format!("{name}:{protocol}"));
    }
    let own = [
        ("node.id", node.to_string()),
        ("listeners", listeners.join(",")),
        ("advertised.listeners", advertised.join(",")),
        ("listener.security.protocol.map", protocols.join(",")),
        ("inter.broker.listener.name", DIRECT.to_owned()),
        ("controller.listener.names", CONTROLLER.to_owned()),
        (
            "controller.quorum.voters",
            voters.collect::<Vec<_>>().join(","),
        ),
        ("log.dirs", data.display().to_string()),
    ];
    let copies = replication(cluster.len());
    let same = COMMON
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()));
    let lines = own.into_iter().chain(copies).chain(same);
    let mut text = String::new();
    for (name, value) in lines {
        text.extend([name, "=", &escaped(&value), "\n"]);
    }
    for (name, value) in extra {
        text.extend([name, "=", &escaped(value), "\n"]);
    }
    text
}

/// Returns settings under which every topic is on every node, and three nodes survive the loss of
/// one.
fn replication(nodes: usize) -> impl Iterator<Item = (&'static str, String)> {
    let enough = if nodes < 3 { 1 } else { 2 };
    let factors = [
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "share.coordinator.state.topic.replication.factor",
    ];
    let minimums = [
        "min.insync.replicas",
        "transaction.state.log.min.isr",
        "share.coordinator.state.topic.min.isr",
    ];
    let factors = factors.map(|name| (name, nodes.to_string()));
    let minimums = minimums.map(|name| (name, enough.to_string()));
    factors.into_iter().chain(minimums)
}

/// The properties of all nodes of all clusters. The others keep Kafka's defaults.
const COMMON: [(&str, &str); 30] = [
    ("process.roles", "broker,controller"),
    // A misspelt name must be an error, and a topic is created with its partitions.
    ("auto.create.topics.enable", "false"),
    ("offsets.topic.num.partitions", "8"),
    ("transaction.state.log.num.partitions", "8"),
    ("share.coordinator.state.topic.num.partitions", "8"),
    // Groups are quick: no wait for further members, and assignments at once.
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.consumer.assignment.interval.ms", "0"),
    ("group.share.assignment.interval.ms", "0"),
    ("group.streams.initial.rebalance.delay.ms", "0"),
    // A client of the classic protocol chooses its session timeout. With the new protocol the
    // server does: a property or the configuration of the group can make it as short as this.
    ("group.min.session.timeout.ms", "500"),
    ("group.consumer.min.session.timeout.ms", "500"),
    ("group.consumer.session.timeout.ms", "6000"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    ("group.consumer.heartbeat.interval.ms", "500"),
    ("group.share.min.session.timeout.ms", "500"),
    ("group.share.session.timeout.ms", "6000"),
    ("group.share.min.heartbeat.interval.ms", "100"),
    ("group.share.heartbeat.interval.ms", "500"),
    // A killed node is admitted again when its old session has ended. So this is how long
    // `start_again` takes, and how long partitions have no leader.
    ("broker.session.timeout.ms", "3000"),
    ("broker.heartbeat.interval.ms", "500"),
    // Small: a few clients and little data.
    ("num.network.threads", "2"),
    ("num.io.threads", "2"),
    ("background.threads", "2"),
    ("group.coordinator.threads", "1"),
    ("group.coordinator.background.threads", "1"),
    ("num.recovery.threads.per.data.dir", "1"),
    ("log.cleaner.threads", "1"),
    ("log.cleaner.dedupe.buffer.size", "4194304"),
    // The index of a segment takes this much disk space until the segment is closed.
    ("log.index.size.max.bytes", "1048576"),
    ("log.cleaner.io.buffer.size", "131072"),
];

/// Escapes a value: a backslash begins an escape in such a file.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(base: u16) -> Ports {
        Ports {
            direct: base,
            behind_proxy: base + 1,
            proxied: base + 2,
            controller: base + 3,
        }
    }

    #[test]
    fn a_node_sends_the_clients_of_its_proxy_to_the_proxy() {
        let cluster = [ports(100), ports(200), ports(300)];
        let extra = [("num.io.threads".to_owned(), "9\\".to_owned())];
        let text = properties(1, &cluster, &[], Path::new("/data"), &extra);
        let value = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once('='));
            let mut values = lines.filter(|(of, _)| *of == name).map(|(_, value)| value);
            values.next_back().unwrap().to_owned()
        };
        assert_eq!(value("node.id"), "1");
        assert_eq!(
            value("listeners"),
            "DIRECT://127.0.0.1:200,PROXIED://127.0.0.1:201,CONTROLLER://127.0.0.1:203"
        );
        assert_eq!(
            value("advertised.listeners"),
            "DIRECT://127.0.0.1:200,PROXIED://127.0.0.1:202"
        );
        assert_eq!(
            value("controller.quorum.voters"),
            "0@127.0.0.1:103,1@127.0.0.1:203,2@127.0.0.1:303"
        );
        assert_eq!(value("num.io.threads"), "9\\\\", "the last one wins");
        assert_eq!(value("log.dirs"), "/data");
    }

    #[test]
    fn three_nodes_may_lose_one() {
        let value = |nodes, name| {
            let mut all = replication(nodes);
            all.find(|(of, _)| *of == name).unwrap().1
        };
        let factor = "offsets.topic.replication.factor";
        for (nodes, copies, enough) in [(1, "1", "1"), (2, "2", "1"), (3, "3", "2")] {
            assert_eq!(value(nodes, factor), copies);
            assert_eq!(value(nodes, "min.insync.replicas"), enough);
        }
    }
}
