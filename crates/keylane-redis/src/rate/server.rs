//! The requests of a rate to the server.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use keylane_connector::ErrorKind;
use redis::Cmd;

use super::limits::Limits;
use super::spec::Limit;
use crate::error::RedisError;
use crate::leases::name_of_key;
use crate::link::Link;
use crate::names;
use crate::reconnecting_link::ReconnectingLink;
use crate::script::Script;

static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new(&[include_str!("lua/take.lua")]));

pub(super) struct Server {
    link: ReconnectingLink,
    /// This is the key of the total, and `each` the prefix of the keys with a rate of their own.
    total: Bytes,
    each: Bytes,
    limits: Limits,
}

impl Server {
    pub(super) fn new(link: ReconnectingLink, name: &[u8], limits: Limits) -> Self {
        Self {
            link,
            total: names::beside(name, &[b"rate:total"]),
            each: names::beside(name, &[b"rate:key"]),
            limits,
        }
    }

    /// Returns the servers as errors name them.
    pub(super) fn place(&self) -> Arc<str> {
        self.link.place()
    }

    /// Takes this many permits for each key, or as many as there are. Returns for each how many it
    /// took, and if they are fewer, how long there are no more.
    ///
    /// Without any key it only reports whether the server could execute it.
    pub(super) async fn take(
        &self,
        asked: &[(Bytes, u32)],
    ) -> Result<Vec<(u32, Duration)>, RedisError> {
        let Limits { per_key, total, .. } = self.limits;
        // Without a rate per key there are no keys.
        let keys = if per_key.is_some() { asked } else { &[] };
        let arguments = |command: &mut Cmd| {
            command.arg(keys.len() + 1).arg(&*self.total);
            let mut name = Vec::new();
            for (key, _) in keys {
                name.clear();
                name_of_key(&self.each, key, &mut name);
                command.arg(&*name);
            }
            for limit in [total, per_key] {
                let Limit { each, burst } = limit.unwrap_or(Limit { each: 0, burst: 0 });
                command.arg(each).arg(burst);
            }
            for (_, wanted) in asked {
                command.arg(wanted);
            }
        };
        let take = |link: Link| async move { TAKE.run(&link, arguments).await };
        // Permits that were taken and not answered are lost.
        let answers: Vec<u64> = self.link.repeat(take).await?;
        let answers = answers.chunks_exact(2).map(|answer| {
            let taken = u32::try_from(answer[0]).ok()?;
            Some((taken, Duration::from_micros(answer[1])))
        });
        let answers: Option<Vec<_>> = answers.collect();
        let answers = answers.filter(|answers| answers.len() == asked.len());
        answers.ok_or_else(|| RedisError::new(ErrorKind::Other, "unexpected answer"))
    }
}
