//! Scripts, each of which is one step that happens as a whole.

use redis::{Cmd, ErrorKind, FromRedisValue, ServerErrorKind, cmd};

use crate::error::RedisError;
use crate::link::Link;

/// A script, which servers know by its hash once they have seen it.
pub(crate) struct Script {
    code: &'static str,
    hash: String,
}

impl Script {
    pub(crate) fn new(code: &'static str) -> Self {
        Self {
            code,
            hash: redis::Script::new(code).get_hash().to_owned(),
        }
    }

    /// Runs it. A server that does not know it, because it was started anew or has forgotten it, is
    /// sent the whole of it: nothing was done before that.
    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        link: &mut Link,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<T, RedisError> {
        let command = |name, script: &str| {
            let mut command = cmd(name);
            command.arg(script);
            arguments(&mut command);
            command
        };
        let known = command("EVALSHA", &self.hash);
        match known.query_async(link).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                Ok(command("EVAL", self.code).query_async(link).await?)
            }
            answer => Ok(answer?),
        }
    }
}
