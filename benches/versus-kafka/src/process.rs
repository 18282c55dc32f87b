//! The process of a contender: started, waited for, killed.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::Error;
use crate::contenders::{Id, Parallel};
use crate::report::Report;
use crate::task::Task;
use crate::work::read_progress;

/// The hidden subcommand with which this program runs a contender.
pub const SUBCOMMAND: &str = "contender";

/// How often the progress of a process is read that is to be killed.
const LOOK: Duration = Duration::from_millis(5);

/// Runs a contender to its end.
pub async fn run(
    id: Id,
    task: &Task,
    java: Option<&Parallel>,
    limit: Duration,
) -> Result<Report, Error> {
    let mut child = start(id, task, java)?;
    let mut stdout = child.stdout.take().ok_or("stdout is piped")?;
    let mut output = String::new();
    let ended = async {
        stdout.read_to_string(&mut output).await?;
        child.wait().await
    };
    let Ok(status) = timeout(limit, ended).await else {
        child.kill().await?;
        return Err(format!("not done after {} s", limit.as_secs()).into());
    };
    let status = status?;
    let last = output.lines().rfind(|line| line.starts_with('{'));
    let last = last.ok_or_else(|| format!("no report ({status})"))?;
    Ok(serde_json::from_str(last)?)
}

/// Runs a contender, kills it when half of the records are done, and runs it again. The report is the
/// one of the second process.
pub async fn run_twice(
    id: Id,
    task: &Task,
    java: Option<&Parallel>,
    limit: Duration,
    progress: &Path,
) -> Result<Report, Error> {
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(progress)?;
    file.write_all(&vec![0; task.keys as usize * 4])?;
    let mut task = Task {
        progress: Some(progress.to_owned()),
        ..task.clone()
    };
    let mut child = start(id, &task, java)?;
    let half = async {
        loop {
            let done = read_progress(&file, task.keys)?;
            if done.iter().copied().map(u64::from).sum::<u64>() >= task.expected / 2 {
                return Ok::<(), Error>(());
            }
            if let Some(status) = child.try_wait()? {
                return Err(format!("ended before it was killed ({status})").into());
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let half = timeout(limit, half).await;
    // SIGKILL.
    child.kill().await?;
    half.map_err(|_| "half of the records were not done in time")??;
    let done = read_progress(&file, task.keys)?;
    if done.iter().copied().map(u64::from).sum::<u64>() >= task.expected {
        return Err("all records were done before the kill: it needs more of them".into());
    }
    task.follows = true;
    run(id, &task, java, limit).await
}

fn start(id: Id, task: &Task, java: Option<&Parallel>) -> Result<Child, Error> {
    let mut command = match (id.is_java(), java) {
        (false, _) => {
            let mut command = std::process::Command::new(std::env::current_exe()?);
            command.arg(SUBCOMMAND);
            command
        }
        (true, Some(java)) => java.command(),
        (true, None) => return Err("the program in Java is not built".into()),
    };
    command.arg(id.name());
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let task = Task {
        started_ms: u64::try_from(now.as_millis())?,
        ..task.clone()
    };
    command.args(task.arguments());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(Command::from(command).kill_on_drop(true).spawn()?)
}
