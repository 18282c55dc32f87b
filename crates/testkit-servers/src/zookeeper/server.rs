//! One server of an ensemble.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ServerError;
use crate::daemon::Daemon;
use crate::zookeeper::java::Java;
use crate::zookeeper::{Mode, ZooKeeperBuilder, word};

/// How long one check of a starting server may take. It is repeated.
const PROBE: Duration = Duration::from_secs(2);

/// The ports of a server, on 127.0.0.1.
#[derive(Debug, Clone)]
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) quorum: u16,
    pub(super) election: u16,
    /// The port at which this server reaches the quorum port of each server: its own, and the
    /// proxies to the others.
    pub(super) to: Vec<u16>,
}

/// A server, with its data.
#[derive(Debug)]
pub(super) struct Server {
    port: u16,
    properties: PathBuf,
    log: PathBuf,
    pub(super) data: PathBuf,
    pub(super) daemon: Daemon,
}

impl Server {
    /// Creates the server with this number, in files of its own in `folder`.
    pub(super) fn new(
        id: usize,
        ensemble: &[Ports],
        folder: &Path,
        settings: &ZooKeeperBuilder,
    ) -> Result<Self, ServerError> {
        let name = format!("server-{id}");
        let data = folder.join(&name);
        let properties = folder.join(format!("{name}.cfg"));
        let written = fs::create_dir(&data)
            .and_then(|()| fs::write(data.join("myid"), format!("{id}\n")))
            .and_then(|()| fs::write(&properties, text(id, ensemble, &data, settings)));
        written.map_err(ServerError::system("prepare the folder of the server"))?;
        let log = folder.join(format!("{name}.log"));
        Ok(Self {
            port: ensemble[id].client,
            properties,
            data,
            daemon: Daemon::new(log.clone()),
            log,
        })
    }

    /// Starts it and waits until it serves clients, or, if `serves` is false, until it answers.
    /// Gives up when `others_failed`, with the error [`NotRunning`](ServerError::NotRunning).
    pub(super) fn start(
        &self,
        java: &Java,
        serves: bool,
        others_failed: impl Fn() -> bool,
    ) -> Result<(), ServerError> {
        let program = java.server(&self.properties, &self.log);
        self.daemon.start(program, |_| match others_failed() {
            true => Err(ServerError::NotRunning),
            false if serves => Ok(self.mode().is_some()),
            false => Ok(word::ask(self.port, "ruok", PROBE).is_ok_and(|answer| answer == "imok")),
        })
    }

    /// Returns what it is to its ensemble; `None` while it serves no client.
    pub(super) fn mode(&self) -> Option<Mode> {
        let answer = word::ask(self.port, "srvr", PROBE).ok()?;
        match word::field(&answer, "Mode")? {
            "standalone" => Some(Mode::Alone),
            "leader" => Some(Mode::Leader),
            "follower" => Some(Mode::Follower),
            _ => None,
        }
    }
}

/// Returns the properties of server `id`. A later line overrides an earlier one.
fn text(id: usize, ensemble: &[Ports], data: &Path, settings: &ZooKeeperBuilder) -> String {
    let ports = &ensemble[id];
    let mut properties = vec![
        ("tickTime", settings.tick.as_millis().to_string()),
        // Loading is slow on a busy machine, and a server that is silent is given up.
        ("initLimit", "50".to_owned()),
        ("syncLimit", "5".to_owned()),
        ("dataDir", data.display().to_string()),
        ("clientPort", ports.client.to_string()),
        ("clientPortAddress", "127.0.0.1".to_owned()),
        ("maxClientCnxns", "0".to_owned()),
        ("admin.enableServer", "false".to_owned()),
        ("4lw.commands.whitelist", "*".to_owned()),
    ];
    for (name, value) in &settings.properties {
        properties.retain(|(set, _)| set != name);
        properties.push((name, value.clone()));
    }
    let mut text = String::new();
    for (name, value) in properties {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{name}={value}");
    }
    if ensemble.len() > 1 {
        for (other, its) in ensemble.iter().enumerate() {
            let (quorum, election) = (ports.to[other], its.election);
            let _ = writeln!(text, "server.{other}=127.0.0.1:{quorum}:{election}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_overrides_an_earlier_one() {
        let ports = Ports {
            client: 1,
            quorum: 2,
            election: 3,
            to: vec![2],
        };
        let settings = ZooKeeperBuilder::default()
            .property("syncLimit", "7")
            .property("syncLimit", "9");
        let text = text(0, &[ports], Path::new("/data"), &settings);
        assert_eq!(text.matches("syncLimit").count(), 1, "{text}");
        assert!(text.contains("syncLimit=9\n") && !text.contains("server."));
    }
}
