//! The scripts: each is one atomic step, and uses only the clock of the server.

use std::sync::LazyLock;

use bytes::Bytes;
use redis::{Cmd, ErrorKind, FromRedisValue, Script, ServerErrorKind, ToRedisArgs, cmd};

use super::keys::{Keys, WorkerKeys};
use super::outbox::Outgoing;
use crate::error::RedisError;
use crate::link::Link;

/// Moving an element takes next to no memory, and without it a queue in a full server would stay
/// full.
const HEAD: &str = "#!lua flags=allow-oom\n";
const COMMON: &str = include_str!("lua/common.lua");

macro_rules! scripts {
    ($($name:ident: $file:literal),* $(,)?) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[HEAD, COMMON, include_str!($file)].concat())
        });)*
    };
}

scripts! {
    TURN: "lua/turn.lua",
    ENTER: "lua/enter.lua",
    LEAVE: "lua/leave.lua",
    EXPIRE: "lua/expire.lua",
    LETTER: "lua/letter.lua",
    LETTERS: "lua/letters.lua",
    REDRIVE: "lua/redrive.lua",
    REREAD: "lua/reread.lua",
}

/// A script with its arguments, as one command.
pub(super) struct Call {
    script: &'static Script,
    command: Cmd,
}

impl Call {
    /// Creates a call for a list.
    pub(super) fn new(script: &'static LazyLock<Script>, keys: &Keys) -> Self {
        Self::with(script, &keys.all())
    }

    /// Creates a call for a worker of a list, which may put elements into these inboxes of other
    /// workers.
    pub(super) fn of<'a>(
        script: &'static LazyLock<Script>,
        keys: &'a Keys,
        worker: &'a WorkerKeys,
        inboxes: impl IntoIterator<Item = &'a Bytes>,
    ) -> Self {
        let keys = keys.all().into_iter().chain(worker.all());
        Self::with(script, &keys.chain(inboxes).collect::<Vec<_>>())
    }

    fn with(script: &'static LazyLock<Script>, keys: &[&Bytes]) -> Self {
        let script = &**script;
        let mut command = cmd("EVALSHA");
        command.arg(script.get_hash()).arg(keys.len());
        for key in keys {
            command.arg(&***key);
        }
        Self { script, command }
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds the changes of a turn.
    pub(super) fn said(mut self, said: &Outgoing) -> Self {
        for settled in [&said.done, &said.gone] {
            self.command.arg(settled.len());
            for (place, key) in settled {
                self.command.arg(place).arg(tagged(key.as_deref()));
            }
        }
        self.command.arg(said.notes.len());
        for (place, attempts) in &said.notes {
            self.command.arg(place).arg(attempts);
        }
        self.command.arg(said.again.len()).arg(&said.again);
        self
    }

    /// Runs the call. Loads the script if the server does not know it.
    pub(super) async fn run<T: FromRedisValue>(&self, link: &mut Link) -> Result<T, RedisError> {
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        match self.command.query_async(link).await {
            Err(error) if error.kind() == unknown => {
                self.script.load_async(link).await?;
                Ok(self.command.query_async(link).await?)
            }
            answer => Ok(answer?),
        }
    }
}

/// Marks a key, so that an empty key differs from a missing one.
pub(super) fn tagged(key: Option<&[u8]>) -> Vec<u8> {
    key.map_or_else(Vec::new, |key| [b"k", key].concat())
}
