//! The program of a server.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::ServerError;
use crate::process::Program;
use crate::program::find;
use crate::zookeeper::jars;

/// The file with the settings of the log.
const LOGGING: &str = "logback.xml";

/// The settings of the log: what the server says of elections and sessions, without its packets.
const LOGGING_SETTINGS: &str = r#"<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
"#;

/// A virtual machine with the jars, and the folder of an ensemble.
#[derive(Debug)]
pub(super) struct Java {
    program: PathBuf,
    class_path: OsString,
    folder: PathBuf,
}

impl Java {
    /// Finds Java and the jars.
    pub(super) fn new(folder: &Path) -> Result<Self, ServerError> {
        let java = Self {
            program: find("java")?,
            class_path: jars::class_path()?,
            folder: folder.to_owned(),
        };
        fs::write(folder.join(LOGGING), LOGGING_SETTINGS)
            .map_err(ServerError::system("prepare the folder of the server"))?;
        Ok(java)
    }

    /// Returns a server with its file of properties.
    pub(super) fn server(&self, properties: &Path, log: &Path) -> Program {
        let path = |before: &str, path: &Path| {
            let mut option = OsString::from(before);
            option.push(path);
            option
        };
        Program::new(&self.program, &self.folder, log)
            // Only the folder outlives a KILL.
            .last_signal("KILL")
            .args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            // The file would stay in the common folder for temporary files after a KILL.
            .arg("-XX:-UsePerfData")
            .arg("-XX:+ExitOnOutOfMemoryError")
            .arg("-Djava.awt.headless=true")
            .arg(path("-Djava.io.tmpdir=", &self.folder))
            .arg(path("-XX:ErrorFile=", &self.folder.join("crash")))
            .arg(path(
                "-Dlogback.configurationFile=",
                &self.folder.join(LOGGING),
            ))
            .arg("-cp")
            .arg(&self.class_path)
            // It starts a server without others too.
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(properties)
    }
}
