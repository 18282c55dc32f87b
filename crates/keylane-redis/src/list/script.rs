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
/// This one adds an element: the server refuses it without free memory.
const ADDS: &str = "#!lua\n";
const COMMON: &str = include_str!("lua/common.lua");

macro_rules! scripts {
    ($($name:ident: $head:ident, $($file:literal),+;)*) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[$head, COMMON, $(include_str!($file)),+])
        });)*
    };
}

scripts! {
    TURN: HEAD, "lua/turn.lua";
    ENTER: HEAD, "lua/enter.lua";
    LEAVE: HEAD, "lua/leave.lua";
    EXPIRE: HEAD, "lua/expire.lua";
    REREAD: HEAD, "lua/reread.lua";
    LETTER: HEAD, "lua/numbered.lua", "lua/letter.lua";
    KEEP: ADDS, "lua/numbered.lua", "lua/keep.lua";
    PAGE: HEAD, "lua/numbered.lua", "lua/page.lua";
    REMOVE: HEAD, "lua/numbered.lua", "lua/remove.lua";
    LETTERS: HEAD, "lua/letters.lua";
    REDRIVE: HEAD, "lua/redrive.lua";
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
