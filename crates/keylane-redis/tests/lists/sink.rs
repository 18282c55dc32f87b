//! The target of handlers: another server, which knows the highest token of each key, and refuses
//! lower ones. One journal contains all accepted and refused writes.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Script, cmd};

use crate::support::connect;

const WRITE: &str = r"
local seen = tonumber(redis.call('HGET', 'fence', ARGV[1]) or '0')
local token = tonumber(ARGV[2])
local is_taken = ARGV[4] == '0' or token >= seen
if token > seen then redis.call('HSET', 'fence', ARGV[1], ARGV[2]) end
redis.call('RPUSH', 'journal', ARGV[3] .. ' ' .. ARGV[2] .. (is_taken and ' 1' or ' 0'))
return is_taken and 1 or 0
";

/// A place in the journal.
pub(crate) type Place = usize;

#[derive(Clone)]
pub(crate) struct Sink {
    server: MultiplexedConnection,
    is_fenced: bool,
}

impl Sink {
    /// Creates a sink. Without `is_fenced` it accepts everything.
    pub(crate) async fn at(url: &str, is_fenced: bool) -> Self {
        Self {
            server: connect(url).await,
            is_fenced,
        }
    }

    /// Records that the handler of a message begins: from now on the sink refuses older tokens.
    pub(crate) async fn claim(&self, worker: u32, key: u64, id: u64, token: u64) -> bool {
        self.write('s', worker, key, id, token).await
    }

    /// Writes its effect.
    pub(crate) async fn effect(&self, worker: u32, key: u64, id: u64, token: u64) -> bool {
        self.write('e', worker, key, id, token).await
    }

    async fn write(&self, what: char, worker: u32, key: u64, id: u64, token: u64) -> bool {
        let script = Script::new(WRITE);
        let mut call = script.arg(key);
        call.arg(token).arg(format!("{what} {worker} {key} {id}"));
        call.arg(i32::from(self.is_fenced));
        call.invoke_async(&mut self.server.clone()).await.unwrap()
    }

    /// Records that a worker has lost its elements, without a fault of the test.
    pub(crate) async fn lost(&self, worker: u32) {
        let mut push = cmd("RPUSH");
        push.arg("journal").arg(format!("l {worker} 0 0 0 1"));
        push.exec_async(&mut self.server.clone()).await.unwrap();
    }

    /// Returns the length of the journal.
    pub(crate) async fn len(&self) -> Place {
        let mut len = cmd("LLEN");
        len.arg("journal");
        len.query_async(&mut self.server.clone()).await.unwrap()
    }

    /// Returns the entries after this place.
    pub(crate) async fn read(&self, from: Place) -> Vec<Entry> {
        let mut range = cmd("LRANGE");
        range.arg("journal").arg(from).arg(-1);
        let lines: Vec<String> = range.query_async(&mut self.server.clone()).await.unwrap();
        lines.iter().map(|line| Entry::of(line)).collect()
    }

    /// Sets a value that handlers wait for.
    pub(crate) async fn say(&self, what: &str) {
        let mut set = cmd("SET");
        set.arg(what).arg(1);
        set.exec_async(&mut self.server.clone()).await.unwrap();
    }

    /// Waits for this value.
    pub(crate) async fn hears(&self, what: &str) {
        let mut exists = cmd("EXISTS");
        exists.arg(what);
        let mut server = self.server.clone();
        // A question that is under way while the process stands still times out.
        while !exists.query_async(&mut server).await.unwrap_or(false) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The event of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Start,
    End,
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) what: What,
    pub(crate) worker: u32,
    pub(crate) key: u64,
    pub(crate) id: u64,
    pub(crate) token: u64,
    pub(crate) is_taken: bool,
}

impl Entry {
    fn of(line: &str) -> Self {
        let mut words = line.split(' ');
        let what = match words.next() {
            Some("s") => What::Start,
            Some("e") => What::End,
            _ => What::Lost,
        };
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        Self {
            what,
            worker: u32::try_from(number()).unwrap(),
            key: number(),
            id: number(),
            token: number(),
            is_taken: number() == 1,
        }
    }
}
