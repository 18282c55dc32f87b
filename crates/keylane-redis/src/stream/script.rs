//! The scripts: each is one step that happens as a whole.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, ServerErrorKind, Value, cmd};

use super::answer::Failure;
use crate::link::Link;

/// Acks free memory. A server that is full must take them.
const HEAD: &str = "#!lua flags=allow-oom\n";
const COMMON: &str = include_str!("lua/common.lua");

/// A script, which servers know by its hash once they have seen it.
#[derive(Debug)]
pub(super) struct Script {
    code: String,
    hash: String,
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let code = parts.concat();
        Self {
            hash: redis::Script::new(&code).get_hash().to_owned(),
            code,
        }
    }

    /// Runs it. A server that does not know it is sent the whole of it: nothing was done before that.
    pub(super) async fn run(
        &self,
        link: &Link,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, Failure> {
        let mut link = link.clone();
        let command = |name, script: &str| {
            let mut command = cmd(name);
            command.arg(script);
            arguments(&mut command);
            command
        };
        let known = command("EVALSHA", &self.hash);
        match known.query_async(&mut link).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                Ok(command("EVAL", &self.code).query_async(&mut link).await?)
            }
            answer => Ok(answer?),
        }
    }
}

macro_rules! scripts {
    ($($name:ident: $($part:expr),+;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(&[HEAD, $($part),+]));)*
    };
}

scripts! {
    TAKE: COMMON, include_str!("lua/take.lua");
    PAGE: COMMON, include_str!("lua/page.lua");
    TELL: COMMON, include_str!("lua/tell.lua");
    LETTER: COMMON, include_str!("lua/letter.lua");
    TRIM: COMMON, include_str!("lua/trim.lua");
    LEAVE: COMMON, include_str!("lua/leave.lua");
    JOIN: include_str!("lua/join.lua");
}
