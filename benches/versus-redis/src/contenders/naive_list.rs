//! A reliable list as it is often written: `LMOVE` into a list of what is in work, the handler, `LREM`
//! from that list. Nothing puts back what was with a worker that died.

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{Client, cmd, pipe};
use tokio::task::JoinHandle;

use super::{Contender, HELD, Setup};
use crate::Error;
use crate::message::{Message, PAYLOAD};
use crate::work::Work;

const LIST: &str = "messages";
const PROCESSING: &str = "messages:processing";

/// From which end `LREM` looks for the message. `LMOVE` puts each one at the head.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// `LREM processing 1 message`: from the head, where the newest are. It finds the message at once,
    /// however many others there are.
    Newest,
    /// `LREM processing -1 message`: from the tail, where the oldest are, as BullMQ does. It passes all
    /// that are in work for longer.
    Oldest,
}

impl Look {
    fn count(self) -> i32 {
        match self {
            Self::Newest => 1,
            Self::Oldest => -1,
        }
    }
}

pub(super) struct NaiveList {
    connection: MultiplexedConnection,
    workers: Vec<MultiplexedConnection>,
    look: Look,
    loops: usize,
    running: Vec<JoinHandle<Result<(), Error>>>,
}

impl NaiveList {
    /// With so many loops for each worker, on one connection.
    pub(super) async fn open(setup: &Setup, look: Look, loops: usize) -> Result<Self, Error> {
        let client = Client::open(setup.url.as_str())?;
        let mut workers = Vec::new();
        for _ in 0..setup.workers {
            workers.push(client.get_multiplexed_async_connection().await?);
        }
        let mut connection = client.get_multiplexed_async_connection().await?;
        // In work with another worker.
        let mut hold = cmd("LPUSH");
        hold.arg(PROCESSING);
        for number in 0..HELD {
            hold.arg(format!("{number:0PAYLOAD$}"));
        }
        hold.exec_async(&mut connection).await?;
        Ok(Self {
            connection,
            workers,
            look,
            loops,
            running: Vec::new(),
        })
    }
}

#[async_trait]
impl Contender for NaiveList {
    async fn store(&mut self, messages: &[Message]) -> Result<(), Error> {
        let mut push = cmd("LPUSH");
        push.arg(LIST);
        for message in messages {
            push.arg(message.payload());
        }
        push.exec_async(&mut self.connection).await?;
        Ok(())
    }

    async fn begin(&mut self, work: &Work) -> Result<(), Error> {
        for worker in self.workers.drain(..) {
            for _ in 0..self.loops {
                let consume = consume(worker.clone(), self.look, work.clone());
                self.running.push(tokio::spawn(consume));
            }
        }
        Ok(())
    }

    async fn is_confirmed(&mut self, _: u64) -> Result<bool, Error> {
        let mut left = pipe();
        left.cmd("LLEN").arg(LIST).cmd("LLEN").arg(PROCESSING);
        let left: (usize, usize) = left.query_async(&mut self.connection).await?;
        Ok(left == (0, HELD))
    }

    async fn end(&mut self) {
        for task in self.running.drain(..) {
            task.abort();
        }
    }
}

async fn consume(
    mut connection: MultiplexedConnection,
    look: Look,
    work: Work,
) -> Result<(), Error> {
    let mut take = cmd("LMOVE");
    take.arg(&[LIST, PROCESSING, "RIGHT", "LEFT"]);
    loop {
        let taken: Option<Vec<u8>> = take.query_async(&mut connection).await?;
        let Some(payload) = taken else {
            return Ok(());
        };
        let message = Message::from_payload(&payload).ok_or("a payload of another kind")?;
        work.handle(message).await;
        cmd("LREM")
            .arg(PROCESSING)
            .arg(look.count())
            .arg(payload)
            .exec_async(&mut connection)
            .await?;
    }
}
