//! What the process of a contender is told, as arguments `name=value` that Rust and Java read alike.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Error;
use crate::handler::Handler;

/// The task of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The address of the broker.
    pub bootstrap: String,
    /// The topic.
    pub topic: String,
    /// The group.
    pub group: String,
    /// Partitions of the topic.
    pub partitions: u32,
    /// Keys of the topic.
    pub keys: u32,
    /// Keys below this one are not counted.
    pub first_counted: u32,
    /// Counted records until the end.
    pub expected: u64,
    /// Handlers at once.
    pub concurrency: usize,
    /// What they do.
    pub handler: Handler,
    /// When the process was started, in milliseconds of the epoch.
    pub started_ms: u64,
    /// Where each key has four bytes that say how many of its records are handled, if the process is
    /// to be killed, or follows one that was.
    pub progress: Option<PathBuf>,
    /// It follows one that was killed: it says how many records it has handled again.
    pub follows: bool,
}

impl Task {
    /// As arguments.
    pub fn arguments(&self) -> Vec<String> {
        let progress = self.progress.as_deref();
        let progress = progress.map_or_else(String::new, |path| path.display().to_string());
        vec![
            format!("bootstrap={}", self.bootstrap),
            format!("topic={}", self.topic),
            format!("group={}", self.group),
            format!("partitions={}", self.partitions),
            format!("keys={}", self.keys),
            format!("first_counted={}", self.first_counted),
            format!("expected={}", self.expected),
            format!("concurrency={}", self.concurrency),
            format!("handler={}", self.handler),
            format!("started_ms={}", self.started_ms),
            format!("progress={progress}"),
            format!("follows={}", self.follows),
        ]
    }

    /// From arguments.
    pub fn from_arguments(arguments: &[String]) -> Result<Self, Error> {
        let pairs: BTreeMap<&str, &str> = arguments
            .iter()
            .filter_map(|argument| argument.split_once('='))
            .collect();
        let text = |name: &str| {
            let text = pairs.get(name).copied();
            text.ok_or_else(|| Error::from(format!("the argument `{name}=` is missing")))
        };
        let progress = text("progress")?;
        Ok(Self {
            bootstrap: text("bootstrap")?.to_owned(),
            topic: text("topic")?.to_owned(),
            group: text("group")?.to_owned(),
            partitions: parse(text("partitions")?)?,
            keys: parse(text("keys")?)?,
            first_counted: parse(text("first_counted")?)?,
            expected: parse(text("expected")?)?,
            concurrency: parse(text("concurrency")?)?,
            handler: text("handler")?.parse()?,
            started_ms: parse(text("started_ms")?)?,
            progress: (!progress.is_empty()).then(|| progress.into()),
            follows: parse(text("follows")?)?,
        })
    }
}

fn parse<T: FromStr<Err: Into<Error>>>(text: &str) -> Result<T, Error> {
    text.parse().map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_its_arguments() {
        let task = Task {
            bootstrap: "127.0.0.1:1".to_owned(),
            topic: "t".to_owned(),
            group: "g".to_owned(),
            partitions: 12,
            keys: 10,
            first_counted: 1,
            expected: 1_000,
            concurrency: 100,
            handler: Handler::Random(5_000),
            started_ms: 5,
            progress: None,
            follows: false,
        };
        let killed = Task {
            progress: Some("a/b=c".into()),
            follows: true,
            handler: Handler::Hot(1),
            ..task.clone()
        };
        for task in [task, killed] {
            let read = Task::from_arguments(&task.arguments());
            assert_eq!(read.expect("the same task"), task);
        }
        assert!(Task::from_arguments(&[]).is_err());
    }
}
