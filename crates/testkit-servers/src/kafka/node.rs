//! One node of a cluster.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::ServerError;
use crate::daemon::Daemon;
use crate::kafka::java::{Java, Machine};
use crate::kafka::metadata::metadata;

/// The output of a node once it takes requests.
const STARTED: &str = "Kafka Server started";

/// A broker and controller, with its data.
#[derive(Debug)]
pub(super) struct Node {
    id: usize,
    /// The port of its direct listener.
    port: u16,
    properties: PathBuf,
    log: PathBuf,
    pub(super) daemon: Daemon,
}

impl Node {
    /// Creates a node with these properties, in files of its own in `folder`.
    pub(super) fn new(
        id: usize,
        port: u16,
        folder: &Path,
        properties: &str,
    ) -> Result<Self, ServerError> {
        let file = folder.join(format!("node-{id}.properties"));
        fs::write(&file, properties)
            .map_err(ServerError::system("prepare the folder of the server"))?;
        let log = folder.join(format!("node-{id}.log"));
        Ok(Self {
            id,
            port,
            properties: file,
            daemon: Daemon::new(log.clone()),
            log,
        })
    }

    /// Prepares the folder of its data, with these users of SCRAM.
    pub(super) fn format(
        &self,
        java: &Java,
        cluster: &str,
        users: &[String],
    ) -> Result<(), ServerError> {
        let file = self.properties.as_os_str();
        let args = ["format", "--cluster-id", cluster, "--config"].map(OsStr::new);
        let users = users
            .iter()
            .flat_map(|user| ["--add-scram", user].map(OsStr::new));
        let args: Vec<_> = args.into_iter().chain([file]).chain(users).collect();
        java.tool("kafka.tools.StorageTool", &args, "").map(drop)
    }

    /// Starts it and waits until it answers and sees `seen` nodes, itself included. Gives up when
    /// `others_failed`, with the error [`NotRunning`](ServerError::NotRunning).
    pub(super) fn start(
        &self,
        java: &Java,
        machine: Machine,
        cluster: &str,
        seen: usize,
        others_failed: impl Fn() -> bool,
    ) -> Result<(), ServerError> {
        let program = java.server(machine, &self.properties, &self.log);
        self.daemon.start(program, |printed| {
            if others_failed() {
                return Err(ServerError::NotRunning);
            }
            Ok(printed().contains(STARTED) && self.sees(cluster, seen))
        })
    }

    /// Returns whether it answers, belongs to this cluster (and is not another server on its port),
    /// and sees so many live nodes.
    fn sees(&self, cluster: &str, nodes: usize) -> bool {
        metadata(self.port).is_ok_and(|metadata| {
            let itself = |id: &i32| usize::try_from(*id) == Ok(self.id);
            metadata.cluster == cluster
                && metadata.nodes.iter().any(itself)
                && metadata.nodes.len() >= nodes
        })
    }
}
