//! The scripts: each is one atomic step, and uses only the clock of the server.

use std::sync::LazyLock;

use bytes::Bytes;
use redis::{Cmd, FromRedisValue};

use crate::error::RedisError;
use crate::link::Link;
use crate::script::Script;

/// Moving an element takes next to no memory, and without it a queue in a full server would stay
/// full.
const HEAD: &str = "#!lua flags=allow-oom\n";
const COMMON: &str = include_str!("lua/common.lua");

macro_rules! scripts {
    ($($name:ident: $file:literal),* $(,)?) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[HEAD, COMMON, include_str!($file)])
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

/// Runs a script with these keys and arguments.
pub(super) async fn run<'a, T: FromRedisValue>(
    script: &Script,
    link: &Link,
    keys: impl IntoIterator<Item = &'a Bytes>,
    arguments: impl Fn(&mut Cmd),
) -> Result<T, RedisError> {
    let keys: Vec<&[u8]> = keys.into_iter().map(|key| &**key).collect();
    let run = script.run(link, |command| {
        command.arg(keys.len()).arg(&keys);
        arguments(command);
    });
    run.await
}

/// Marks a key, so that an empty key differs from a missing one.
pub(super) fn tagged(key: Option<&[u8]>) -> Vec<u8> {
    key.map_or_else(Vec::new, |key| [b"k", key].concat())
}
