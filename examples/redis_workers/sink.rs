//! Where the workers write what they have done: a sink that refuses the tokens of the past.
//!
//! It keeps the highest token of each customer, and refuses a lower one. So a worker that was paused, and
//! does not know that others have its orders, writes nothing. What it takes is in one list, in one order,
//! for the judge.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Script, Value};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::order::Order;
use crate::worker::{GROUP, PARTITIONS, STREAM};

const JOURNAL: &str = "journal";
const TOKENS: &str = "tokens";
const REFUSED: &str = "refused";

/// Compares the token with the highest of the customer, keeps it, and writes; or counts.
const WRITE: &str = "
local highest = redis.call('HGET', KEYS[2], ARGV[1])
if highest and tonumber(ARGV[2]) < tonumber(highest) then
  redis.call('INCR', KEYS[3])
  return 0
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('RPUSH', KEYS[1], ARGV[3])
return 1";

/// Something that a worker has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) what: What,
    pub(crate) order: Order,
    pub(crate) token: u64,
    pub(crate) worker: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// A handler begins.
    Start,
    /// It has ended. It is written before the source hears of it.
    End,
}

/// A partition of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) number: u32,
    /// Entries that no worker has had.
    pub(crate) lag: u64,
    /// Entries with a worker, and not acked.
    pub(crate) pending: u64,
    /// The worker that has it, or had it last.
    pub(crate) owner: Option<String>,
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

fn number_of(group: Option<&HashMap<String, Value>>, name: &str) -> u64 {
    match group.and_then(|group| group.get(name)) {
        Some(Value::Int(number)) => u64::try_from(*number).unwrap_or(0),
        _ => 0,
    }
}

/// Connects. The client's own patience of half a second is short for a machine that has much else to do.
pub(crate) async fn connect(client: &Client) -> Result<MultiplexedConnection, RedisError> {
    let patience = Some(Duration::from_secs(30));
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(patience)
        .set_response_timeout(patience);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

#[derive(Clone)]
pub(crate) struct Sink {
    link: MultiplexedConnection,
    write: Script,
}

impl Sink {
    pub(crate) async fn open(url: &str) -> Result<Self, Failure> {
        let link = connect(&Client::open(url)?).await?;
        let write = Script::new(WRITE);
        Ok(Self { link, write })
    }

    /// Whether the token was not lower than the highest of this customer.
    pub(crate) async fn write(&self, entry: &Entry) -> Result<bool, Failure> {
        let mut call = self.write.prepare_invoke();
        call.key(JOURNAL).key(TOKENS).key(REFUSED);
        call.arg(&entry.order.customer).arg(entry.token);
        call.arg(serde_json::to_string(entry)?);
        let taken: u8 = call.invoke_async(&mut self.link.clone()).await?;
        Ok(taken == 1)
    }

    /// The partitions of the stream, as the server has them.
    pub(crate) async fn partitions(&self) -> Result<Vec<Partition>, Failure> {
        let mut partitions = Vec::new();
        for number in 0..PARTITIONS {
            let mut groups = redis::cmd("XINFO");
            groups.arg("GROUPS").arg(format!("{STREAM}:{number}"));
            // A partition that nothing was added to, and no worker has looked at, is not there.
            let groups: Vec<HashMap<String, Value>> = groups
                .query_async(&mut self.link.clone())
                .await
                .unwrap_or_default();
            let ours = groups
                .iter()
                .find(|group| group.get("name").and_then(text).as_deref() == Some(GROUP));
            let mut partition = Partition {
                number,
                lag: number_of(ours, "lag"),
                pending: number_of(ours, "pending"),
                owner: None,
            };
            if ours.is_some() {
                let mut consumers = redis::cmd("XINFO");
                consumers
                    .arg("CONSUMERS")
                    .arg(format!("{STREAM}:{number}"))
                    .arg(GROUP);
                let consumers: Vec<HashMap<String, Value>> =
                    consumers.query_async(&mut self.link.clone()).await?;
                // The consumer is called after its worker and its token: the last one is the owner.
                let names = consumers
                    .iter()
                    .filter_map(|consumer| text(consumer.get("name")?));
                let tokens = names.filter_map(|name| {
                    let (worker, token) = name.rsplit_once('-')?;
                    Some((token.parse::<u64>().ok()?, worker.to_owned()))
                });
                partition.owner = tokens.max().map(|(_, worker)| worker);
            }
            partitions.push(partition);
        }
        Ok(partitions)
    }

    /// What it has taken, in its order, and how much it has refused.
    pub(crate) async fn read(&self) -> Result<(Vec<Entry>, u64), Failure> {
        let mut both = redis::pipe();
        both.cmd("LRANGE").arg(JOURNAL).arg(0).arg(-1);
        both.cmd("GET").arg(REFUSED);
        let (journal, refused): (Vec<String>, Option<u64>) =
            both.query_async(&mut self.link.clone()).await?;
        let journal = journal.iter().map(|entry| serde_json::from_str(entry));
        Ok((journal.collect::<Result<_, _>>()?, refused.unwrap_or(0)))
    }
}
