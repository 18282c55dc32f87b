//! A loop over `XREADGROUP`, with an `XACK` for each batch: the ceiling. It keeps no order across
//! consumers, and takes nothing over from those that die.

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{Client, Value, cmd, pipe};
use tokio::task::JoinHandle;

use super::{Contender, Setup};
use crate::Error;
use crate::message::Message;
use crate::work::Work;

pub(super) const STREAM: &str = "messages";
pub(super) const GROUP: &str = "group";

/// Entries of one read.
const COUNT: usize = 1_000;

pub(super) struct Xreadgroup {
    connection: MultiplexedConnection,
    workers: Vec<MultiplexedConnection>,
    running: Vec<JoinHandle<Result<(), Error>>>,
}

impl Xreadgroup {
    pub(super) async fn open(setup: &Setup) -> Result<Self, Error> {
        let client = Client::open(setup.url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        cmd("XGROUP")
            .arg(&["CREATE", STREAM, GROUP, "0", "MKSTREAM"])
            .exec_async(&mut connection)
            .await?;
        let mut workers = Vec::new();
        for _ in 0..setup.workers {
            workers.push(client.get_multiplexed_async_connection().await?);
        }
        Ok(Self {
            connection,
            workers,
            running: Vec::new(),
        })
    }
}

#[async_trait]
impl Contender for Xreadgroup {
    async fn store(&mut self, messages: &[Message]) -> Result<(), Error> {
        store(&mut self.connection, STREAM, messages).await
    }

    async fn begin(&mut self, work: &Work) -> Result<(), Error> {
        for (number, connection) in self.workers.drain(..).enumerate() {
            self.running
                .push(tokio::spawn(consume(connection, number, work.clone())));
        }
        Ok(())
    }

    async fn is_confirmed(&mut self, _: u64) -> Result<bool, Error> {
        is_settled(&mut self.connection, STREAM, GROUP).await
    }

    async fn end(&mut self) {
        for task in self.running.drain(..) {
            task.abort();
        }
    }
}

/// Adds messages to a stream, each with the fields `key` and `payload`.
pub(super) async fn store(
    connection: &mut MultiplexedConnection,
    stream: &str,
    messages: &[Message],
) -> Result<(), Error> {
    let mut add = pipe();
    for message in messages {
        let add = add.cmd("XADD").arg(stream).arg("*");
        add.arg("key").arg(message.key_text());
        add.arg("payload").arg(message.payload()).ignore();
    }
    add.exec_async(connection).await?;
    Ok(())
}

/// Whether nothing of a stream is pending in a group.
pub(super) async fn is_settled(
    connection: &mut MultiplexedConnection,
    stream: &str,
    group: &str,
) -> Result<bool, Error> {
    let pending: Value = cmd("XPENDING")
        .arg(stream)
        .arg(group)
        .query_async(connection)
        .await?;
    match pending {
        Value::Array(summary) => Ok(summary.first() == Some(&Value::Int(0))),
        _ => Err("XPENDING has said something else".into()),
    }
}

async fn consume(
    mut connection: MultiplexedConnection,
    number: usize,
    work: Work,
) -> Result<(), Error> {
    let mut read = cmd("XREADGROUP");
    read.arg("GROUP")
        .arg(GROUP)
        .arg(format!("consumer-{number}"));
    read.arg("COUNT").arg(COUNT);
    read.arg("STREAMS").arg(STREAM).arg(">");
    loop {
        let reply: Value = read.query_async(&mut connection).await?;
        let entries = entries(reply);
        if entries.is_empty() {
            return Ok(());
        }
        let mut ack = cmd("XACK");
        ack.arg(STREAM).arg(GROUP);
        for entry in entries {
            let Some((id, payload)) = entry_of(entry) else {
                return Err("an entry that is none of ours".into());
            };
            let message = Message::from_payload(&payload).ok_or("a payload of another kind")?;
            work.handle(message).await;
            ack.arg(id);
        }
        ack.exec_async(&mut connection).await?;
    }
}

/// The entries in a reply of `XREADGROUP` for one stream, as they are: the types of the client would
/// make a map of each entry, which costs more than the rest of the loop.
fn entries(reply: Value) -> Vec<Value> {
    let Value::Array(mut streams) = reply else {
        return Vec::new();
    };
    match streams.pop() {
        Some(Value::Array(mut stream)) => match stream.pop() {
            Some(Value::Array(entries)) => entries,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// The id of an entry, and the value of its last field.
fn entry_of(entry: Value) -> Option<(Vec<u8>, Vec<u8>)> {
    let Value::Array(parts) = entry else {
        return None;
    };
    match <[Value; 2]>::try_from(parts).ok()? {
        [Value::BulkString(id), Value::Array(mut fields)] => match fields.pop()? {
            Value::BulkString(payload) => Some((id, payload)),
            _ => None,
        },
        _ => None,
    }
}
