//! Elections: who waits for the term of an election, and which term began last.
//!
//! An election has four keys, all in the slot of its namespace, and each call is one script that
//! sees all of them: the lease of the term (as in `leases/`), the record of the last term, which
//! never expires, the line of candidates, and when their entries end. A script that changes what
//! others wait for publishes the election as it has become (`message.rs`), so that those whom it
//! does not concern go on waiting without a look (`feed.rs`).

mod calls;
mod feed;
mod fence;
mod message;
mod names;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::try_join_all;
use keylane_connector::ConfigError;
use keylane_leader::ElectionStore;
use keylane_leader::store::{
    CandidateId, Election, Entry, History, Recorded, TermRecord, decode, encode, matters,
};
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, LeaseStore, Owner, Token, Wish};
use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Value};

use self::calls::{ENTER, HISTORY, LOOK, RECORD, RELEASE, WITHDRAW};
use self::feed::Feed;
pub use self::fence::{Fence, FenceError};
use self::names::Names;
use crate::leases::{RedisLeases, incomprehensible, millis, write_value};
use crate::link::Link;
use crate::names::check;
use crate::script::Script;
use crate::server::Redis;

/// Elections in Redis or Valkey: a store of
/// [`keylane-leader`](keylane_leader).
///
/// A term is a lease, with the guarantees and the limits of [`RedisLeases`]: read them first. They
/// are leases of their own: a lease of `RedisLeases` in the same namespace never is a term.
///
/// # What a change costs
///
/// One connection of the process is subscribed to the changes of the namespace. A message has the
/// whole election, so a candidate that it does not concern sends nothing: when a leader leaves, one
/// candidate looks, however many wait. When that connection breaks, all look, and again every
/// second until there is another. A lease that runs out, and an entry that ends, publish nothing:
/// a candidate looks when the lease would run out. The next call of any candidate removes an entry
/// that has ended, and publishes that.
///
/// A user without the right to the channel looks every second, and a warning in the log says so. In
/// a cluster one node is subscribed to, which has the messages of all.
///
/// # Histories
///
/// [`history`](ElectionStore::history) is the replication id of the server (`master_replid` of
/// `INFO replication`), in a cluster that of the node with the slot of the namespace.
///
/// | what happens | history |
/// | --- | --- |
/// | a replica is promoted: by hand, by Sentinel, in a cluster | another |
/// | the server starts again, with or without its data | another |
/// | the slot of the namespace moves to another node | another |
/// | the first replica is attached, or none is there for longer than `repl-backlog-ttl` | another |
/// | other replicas come, end and come back; another node of the cluster fails over | the same |
/// | a primary is cut off, and others promote a replica | the same there, another here |
/// | `FLUSHALL` | the same, but no record is left: fenced writes are refused |
///
/// A leader that sees another history stops. In the third and the fourth row that is without need.
/// The last replica may be away for an hour, the default of `repl-backlog-ttl`; 0 is for ever.
///
/// A user who may not call `INFO` has the history `unknown` for ever. Then only the tokens
/// protect, as far as they do for [`RedisLeases`].
///
/// # Cancel safety
///
/// As in [`ElectionStore`]: a call that is dropped may be executed, later, or not at all.
///
/// # Examples
///
/// ```no_run
/// use bytes::Bytes;
/// use keylane_leader::ElectionStore;
/// use keylane_redis::{Redis, RedisElections};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::at("redis://:secret@redis.internal:6379/0")?;
/// let store = RedisElections::open(&redis, "{shop}jobs")?;
/// let election = store.look(&Bytes::from("billing")).await?;
/// println!("the last term: {:?}", election.term);
/// # Ok(())
/// # }
/// ```
pub struct RedisElections {
    leases: RedisLeases,
    names: Arc<Names>,
    feed: Feed,
}

impl RedisElections {
    /// Opens the elections of a namespace. It connects at the first call, and again after a
    /// connection has broken. All are in one slot of a cluster: several namespaces spread them.
    ///
    /// All keys in the database, and the channel, begin with `{namespace}:keylane:`, or with
    /// `{shop}:keylane:15:{shop}namespace:` for a namespace `{shop}namespace`.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for a namespace without a name, for one with braces and no text
    /// between them, and for one that begins like these keys.
    pub fn open(redis: &Redis, namespace: impl Into<Bytes>) -> Result<Self, ConfigError> {
        let namespace = namespace.into();
        check("namespace", &namespace)?;
        let leases = RedisLeases::of_terms(redis, namespace.clone());
        let names = Arc::new(Names::new(namespace));
        let feed = Feed::new(Arc::clone(leases.link()), Arc::clone(&names));
        Ok(Self {
            leases,
            names,
            feed,
        })
    }

    /// Begins a write that the server executes only while the term with this token is the last one
    /// of its election, and has not ended.
    ///
    /// `key` is [that of the term](keylane_leader::Term::key), and not the name of the election.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use keylane_leader::Term;
    /// use keylane_redis::{FenceError, RedisElections};
    ///
    /// /// The namespace of the elections is `{shop}jobs`: these keys are in its slot.
    /// async fn pay(
    ///     store: &RedisElections,
    ///     term: &Term,
    /// ) -> Result<(), FenceError> {
    ///     let write = store.fence(term.key(), term.token()).history(term.history());
    ///     let write = write.command("HINCRBY", "{shop}balances", ["account-7", "-12"]);
    ///     let write = write.command("RPUSH", "{shop}payments", ["account-7 12"]);
    ///     write.run().await
    /// }
    /// ```
    pub fn fence(&self, key: impl AsRef<[u8]>, token: Token) -> Fence<'_> {
        Fence::new(self.leases.link(), self.names.record(key.as_ref()), token)
    }

    /// Runs a script with the keys of an election. Executing it twice does no harm.
    async fn call<A: FromRedisValue>(
        &self,
        script: &Script,
        key: &[u8],
        arguments: impl Fn(&mut Cmd) + Sync,
    ) -> Result<A, StoreError> {
        let (lease, record) = (self.leases.name(key), self.names.record(key));
        let candidates = self.names.candidates(key);
        let run = |link: Link| {
            let (lease, record, candidates, arguments) = (&lease, &record, &candidates, &arguments);
            async move {
                let channel = self.names.channel(link.get_db());
                let arguments = |command: &mut Cmd| {
                    command.arg(4).arg(lease).arg(record).arg(candidates);
                    command.arg(&*channel).arg(record);
                    arguments(command);
                };
                script.run(&link, arguments).await
            }
        };
        let answer = self.leases.link().repeat(run).await;
        answer.map_err(|error| StoreError::new(error.to_string()))
    }

    /// The same for scripts that return the election.
    async fn see(
        &self,
        script: &Script,
        key: &[u8],
        arguments: impl Fn(&mut Cmd) + Sync,
    ) -> Result<Election, StoreError> {
        let answer: Value = self.call(script, key, arguments).await?;
        calls::election(&answer).ok_or_else(incomprehensible)
    }
}

#[async_trait]
impl LeaseStore for RedisElections {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        self.leases.acquire(owner, wishes).await
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        self.leases.renew(owner, claims).await
    }

    /// Ends the leases, and publishes each end in the same step.
    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        let releases = claims.iter().map(async |claim| {
            let mut held = String::new();
            write_value(&mut held, owner, claim.token);
            let arguments = |command: &mut Cmd| {
                command.arg(&held);
            };
            self.call::<u64>(&RELEASE, &claim.key, arguments).await
        });
        // All at the same time, on one connection.
        try_join_all(releases).await?;
        Ok(())
    }

    async fn held_by(
        &self,
        key: &Bytes,
    ) -> Result<Option<keylane_leases::store::Holder>, StoreError> {
        self.leases.held_by(key).await
    }
}

#[async_trait]
impl ElectionStore for RedisElections {
    async fn enter(
        &self,
        key: &Bytes,
        entry: &Entry,
        ttl: Duration,
    ) -> Result<Election, StoreError> {
        let arguments = |command: &mut Cmd| {
            command
                .arg(entry.id.as_str())
                .arg(entry.rank)
                .arg(millis(ttl));
        };
        self.see(&ENTER, key, arguments).await
    }

    async fn look(&self, key: &Bytes) -> Result<Election, StoreError> {
        self.see(&LOOK, key, |_| ()).await
    }

    async fn withdraw(&self, key: &Bytes, candidate: &CandidateId) -> Result<(), StoreError> {
        let arguments = |command: &mut Cmd| {
            command.arg(candidate.as_str());
        };
        self.call::<u64>(&WITHDRAW, key, arguments).await?;
        Ok(())
    }

    async fn record(&self, key: &Bytes, term: &TermRecord) -> Result<Recorded, StoreError> {
        let stage = term.stage.as_str();
        let record = encode(term);
        let arguments = |command: &mut Cmd| {
            command.arg(term.token.0).arg(term.leader.as_str());
            command.arg(stage).arg(&record);
        };
        let (is_refused, was): (bool, Option<String>) = self.call(&RECORD, key, arguments).await?;
        if is_refused {
            return Ok(Recorded::Refused);
        }
        let was = was.map(|was| decode(&was).ok_or_else(incomprehensible));
        Ok(Recorded::Written(was.transpose()?))
    }

    async fn history(&self) -> Result<History, StoreError> {
        let home = self.names.home();
        let run = |link: Link| {
            let arguments = |command: &mut Cmd| {
                command.arg(1).arg(&*home);
            };
            async move { HISTORY.run(&link, arguments).await }
        };
        let history: Result<String, _> = self.leases.link().repeat(run).await;
        let history = history.map_err(|error| StoreError::new(error.to_string()))?;
        Ok(History::new(history))
    }

    async fn changed(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
    ) -> Result<(), StoreError> {
        let name = self.names.record(key);
        loop {
            // First it listens, and then it looks.
            let mut listener = self.feed.listen();
            let now = self.look(key).await?;
            let concerns = |now: &Election| matters(candidate, seen, now);
            if concerns(&now) || listener.hears(&name, concerns).await {
                return Ok(());
            }
        }
    }
}

impl fmt::Debug for RedisElections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisElections")
            .field("namespace", self.names.namespace())
            .finish_non_exhaustive()
    }
}
