//! Scripts, each of which is one step that happens as a whole.

use redis::{Cmd, ErrorKind, FromRedisValue, ServerErrorKind, cmd};

use crate::link::Link;

/// A script, which servers know by its hash once they have seen it.
#[derive(Debug)]
pub(crate) struct Script {
    code: String,
    hash: String,
}

impl Script {
    /// The script that these parts are together.
    pub(crate) fn new(parts: &[&str]) -> Self {
        let code = parts.concat();
        Self {
            hash: redis::Script::new(&code).get_hash().to_owned(),
            code,
        }
    }

    /// The whole of it.
    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    /// Runs it. A server that does not know it, because it was started anew or has forgotten it, is
    /// sent the whole of it: nothing was done before that.
    pub(crate) async fn run<T: FromRedisValue, E: From<redis::RedisError>>(
        &self,
        link: &Link,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<T, E> {
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
