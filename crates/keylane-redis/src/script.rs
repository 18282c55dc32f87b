//! Scripts. Each is one atomic step.

use redis::{Cmd, ErrorKind, FromRedisValue, ServerErrorKind, cmd};

use crate::error::RedisError;
use crate::link::Link;

/// A script. Servers know it by its hash after its first use.
#[derive(Debug)]
pub(crate) struct Script {
    code: String,
    hash: String,
}

impl Script {
    /// Creates the script from these parts.
    pub(crate) fn new(parts: &[&str]) -> Self {
        let code = parts.concat();
        Self {
            hash: redis::Script::new(&code).get_hash().to_owned(),
            code,
        }
    }

    /// Returns the whole code.
    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    /// Runs the script. If the server does not know it, because it was restarted or has forgotten
    /// it, sends the whole code: nothing was executed before that.
    pub(crate) async fn run<T: FromRedisValue, E: From<RedisError>>(
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
        let answer = match known.query_async(&mut link).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                command("EVAL", &self.code).query_async(&mut link).await
            }
            answer => answer,
        };
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(link.explain(&known, error).await.into()),
        }
    }
}
