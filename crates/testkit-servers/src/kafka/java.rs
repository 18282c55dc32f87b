//! Programs in Kafka's jars.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use crate::ServerError;
use crate::kafka::jars;
use crate::process::Program;
use crate::program::{find, run};

/// How long a tool may run, in seconds.
const TOOL_SECONDS: u64 = 60;

/// The file with the settings of the log, in the folder of the cluster.
const LOGGING: &str = "log4j2.properties";

/// The settings of the log: warnings of all parts, and the messages of those that tests need. The
/// tools print their results, and log messages must not disturb them.
const LOGGING_SETTINGS: &str = "\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server
logger.server.level = info
logger.group.name = org.apache.kafka.coordinator.group
logger.group.level = info
";

/// Options for a start that is quick and needs little of the processor.
const QUICK: [&str; 2] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// A virtual machine with the jars, and the folder of a cluster.
#[derive(Debug)]
pub(super) struct Java {
    program: PathBuf,
    class_path: OsString,
    folder: PathBuf,
}

/// The settings of the virtual machine of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) heap_mib: u32,
    /// Whether it is set for a quick start, instead of for throughput.
    pub(super) is_quick: bool,
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

    /// Returns a node with its file of properties.
    pub(super) fn server(&self, machine: Machine, properties: &Path, log: &Path) -> Program {
        Program::new(&self.program, &self.folder, log)
            // Only the folder outlives a KILL, and an orderly stop is slow.
            .last_signal("KILL")
            .arg(format!("-Xmx{}m", machine.heap_mib))
            .args(QUICK.into_iter().filter(|_| machine.is_quick))
            .args(self.options())
            .arg("kafka.Kafka")
            .arg(properties)
    }

    /// Runs the tool of this class, which reads `input`. Returns its output.
    pub(super) fn tool(
        &self,
        class: &str,
        args: &[impl AsRef<OsStr>],
        input: &str,
    ) -> Result<String, ServerError> {
        let file = || {
            let mut file = tempfile::tempfile_in(&self.folder)?;
            file.write_all(input.as_bytes())?;
            file.rewind()?;
            Ok(file)
        };
        let input = file().map_err(ServerError::system("write the input of a tool"))?;
        run(&self.program, None, TOOL_SECONDS, |java| {
            java.arg("-Xmx128m").args(QUICK).args(self.options());
            java.arg(class).args(args).stdin(input);
            java.current_dir(&self.folder);
        })
    }

    fn options(&self) -> [OsString; 8] {
        let path = |before: &str, path: &Path| {
            let mut option = OsString::from(before);
            option.push(path);
            option
        };
        [
            // The file would stay in the common folder for temporary files after a KILL.
            "-XX:-UsePerfData".into(),
            path("-Djava.io.tmpdir=", &self.folder),
            path("-XX:ErrorFile=", &self.folder.join("crash")),
            // A node without memory must end, and not go on half alive.
            "-XX:+ExitOnOutOfMemoryError".into(),
            "-Djava.awt.headless=true".into(),
            path("-Dlog4j2.configurationFile=", &self.folder.join(LOGGING)),
            "-cp".into(),
            self.class_path.clone(),
        ]
    }
}
