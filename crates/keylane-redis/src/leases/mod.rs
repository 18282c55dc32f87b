//! Leases: one key in Redis for each lease.
//!
//! Its value is `<token> <owner>`, and it expires when the lease runs out. Each operation is one
//! script, which compares that value and acts in one step. Tokens come from one counter for each
//! slot.

mod name;

use std::fmt::{self, Write};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::try_join_all;
use keylane_connector::ConfigError;
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, Holder, LeaseStore, Owner, Token, Wish};
use redis::{Cmd, FromRedisValue, Value};

use self::name::Names;
pub(crate) use self::name::name_of_key;
pub(crate) use crate::error::RedisError;
use crate::link::Link;
use crate::names;
use crate::reconnecting_link::ReconnectingLink;
use crate::script::Script;
use crate::server::Redis;

/// Most leases in one call of a script. The server executes no other command meanwhile, for a few
/// milliseconds.
const AT_ONCE: usize = 1_000;

/// A hundred years. The server adds the current time to a time to live, and must not overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[include_str!("lua/acquire.lua")]));
static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(&[include_str!("lua/renew.lua")]));
static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[include_str!("lua/release.lua")]));
static HELD_BY: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[include_str!("lua/held_by.lua")]));

/// Leases in Redis or Valkey.
///
/// Each call is one round trip for up to 1,000 leases, and one script on the server. A lease that
/// has ended leaves no data behind.
///
/// # Guarantees
///
/// The clock of the server alone decides about grants and ends. It is the time of day, so it jumps
/// when it is set. The holder uses its own monotonic clock, starts it before it sends the request,
/// and gives the lease up a tenth of its time to live before the server does. So the holder is the
/// first to know of the end, as long as the clock of the server does not gain more than that tenth
/// during one time to live: by running faster, by being set forward, or by a failover to a server
/// whose clock is ahead.
///
/// **A failover can give a key to a second holder while the first one still has it.** Replication
/// is asynchronous: a replica that is promoted before it has received a grant does not know the
/// grant. A primary that was cut off continues to renew its grants as long as it believes that it
/// is a primary. A server that crashes with `appendfsync everysec` loses up to a second, and one
/// without an append-only file loses all. The first holder learns of it when its renewal reaches
/// the server that took over, and not before. The [token](keylane_leases::Token) of the second
/// grant makes this harmless: it is higher, if both holders write through a sink that refuses a
/// token lower than one it has seen. That is not true of a token that the first primary grants when
/// it was cut off already: the tokens of two primaries at once have no order. `appendfsync always`
/// and `min-replicas-to-write` make such a loss less likely, and do not exclude it.
///
/// # Why tokens grow
///
/// A token is the larger of two numbers: the previous token plus one, or the microseconds since
/// 1970 by the clock of the server. As long as the server keeps its data, tokens grow whatever its
/// clock does. If a failover or a crash loses grants, the next tokens are still higher, provided
/// that the clock of the server that takes over shows a later time than the last lost token. That
/// token is the time of its grant by the clock of the earlier server, plus some microseconds in a
/// call with many leases, plus the amount by which that clock was set back before. So the clock of
/// a replica may be behind by as much as the failover takes, and the clock of a restarted server
/// may be set back by as much as the restart takes.
///
/// # Cancel safety
///
/// As in [`LeaseStore`]: a call that is dropped may be executed as a whole, later, or not at all.
/// Of a call for more than 1,000 leases, or for several [slots](Self::slots), a part may be
/// executed.
///
/// # Clusters
///
/// All leases of a namespace are in one slot of a cluster, unless [`slots`](Self::slots) sets
/// another number.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
/// use keylane_leases::Leases;
/// use keylane_redis::{Redis, RedisLeases};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::at("redis://:secret@redis.internal:6379/0")?;
/// let store = RedisLeases::open(&redis, "accounts")?;
///
/// let leases = Leases::open(Arc::new(store))?;
/// let lease = leases.acquire("account-7", Duration::from_secs(10)).await?;
/// # drop(lease);
/// # Ok(())
/// # }
/// ```
pub struct RedisLeases {
    link: Arc<ReconnectingLink>,
    names: Names,
}

impl RedisLeases {
    /// Opens the leases of a namespace. It connects at the first call, and again after a connection
    /// has broken.
    ///
    /// All keys in the database begin with `{namespace}:keylane:lease`, or with
    /// `{shop}:keylane:15:{shop}namespace:lease` for a namespace `{shop}namespace`.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for a namespace without a name, for
    /// one with braces and no text between them, and for one that begins
    /// like these keys.
    pub fn open(redis: &Redis, namespace: impl Into<Bytes>) -> Result<Self, ConfigError> {
        let namespace = namespace.into();
        names::check("namespace", &namespace)?;
        Ok(Self::with(redis, Names::new(namespace, 1)))
    }

    /// Opens the leases of the terms of elections. The namespace was [checked](names::check).
    pub(crate) fn of_terms(redis: &Redis, namespace: Bytes) -> Self {
        Self::with(redis, Names::of_terms(namespace))
    }

    fn with(redis: &Redis, names: Names) -> Self {
        Self {
            link: Arc::new(ReconnectingLink::new(redis.clone())),
            names,
        }
    }

    pub(crate) fn link(&self) -> &Arc<ReconnectingLink> {
        &self.link
    }

    /// Returns the key of a lease in the database.
    pub(crate) fn name(&self, key: &[u8]) -> Vec<u8> {
        let mut name = Vec::new();
        self.names.lease(self.names.slot(key), key, &mut name);
        name
    }

    /// Spreads the leases over this many hash tags, and so over the nodes of a cluster; 1 by
    /// default. A call takes one round trip for each tag of its keys, all at the same time.
    ///
    /// All processes must set the same number: with another number a lease is in another place, and
    /// a key has two holders. To change it, let all leases of the old number end first.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane_redis::{Redis, RedisLeases};
    ///
    /// # fn main() -> Result<(), keylane_redis::ConfigError> {
    /// let redis = Redis::cluster(["redis://node-1:6379", "redis://node-2:6379"])?;
    /// let store = RedisLeases::open(&redis, "accounts")?.slots(16)?;
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    pub fn slots(self, slots: u16) -> Result<Self, ConfigError> {
        match slots {
            0 => Err(ConfigError::zero("slots")),
            _ => Ok(Self {
                names: Names::new(self.names.namespace().clone(), slots),
                ..self
            }),
        }
    }

    /// Groups items by slot, in parts that fit into a call.
    fn parts<'a, T>(&self, all: &'a [T], key: impl Fn(&T) -> &Bytes) -> Vec<Part<'a, T>> {
        let mut open: Vec<Option<Part<'a, T>>> = (0..self.names.slots()).map(|_| None).collect();
        let mut parts = Vec::new();
        for (place, one) in all.iter().enumerate() {
            let slot = self.names.slot(key(one));
            let part = open[slot].get_or_insert_with(|| Part::new(slot));
            part.push(place, one);
            if part.items.len() == AT_ONCE {
                parts.extend(open[slot].take());
            }
        }
        parts.extend(open.into_iter().flatten());
        parts
    }

    /// Adds the keys of the leases in the database to a command.
    fn names<T>(&self, command: &mut Cmd, part: &Part<'_, T>, key: impl Fn(&T) -> &Bytes) {
        let mut name = Vec::new();
        for item in &part.items {
            name.clear();
            self.names.lease(part.slot, key(item), &mut name);
            command.arg(&*name);
        }
    }

    /// Runs a script for each part, all at the same time. Returns the parts with their answers.
    async fn call<'a, T, A: FromRedisValue>(
        &self,
        script: &Script,
        parts: Vec<Part<'a, T>>,
        arguments: impl Fn(&Part<'a, T>, &mut Cmd),
    ) -> Result<Vec<(Part<'a, T>, A)>, StoreError> {
        let arguments = &arguments;
        let calls = parts.into_iter().map(|part| async move {
            let run = |link: Link| {
                let part = &part;
                async move { script.run(&link, |command| arguments(part, command)).await }
            };
            // A lease that was granted is granted to its owner again, under a later token.
            let answer = self.link.repeat(run).await?;
            Ok::<_, RedisError>((part, answer))
        });
        try_join_all(calls)
            .await
            .map_err(|error| StoreError::new(error.to_string()))
    }
}

#[async_trait]
impl LeaseStore for RedisLeases {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        let parts = self.parts(wishes, |wish| &wish.key);
        let answered = self.call(&ACQUIRE, parts, |part, command| {
            command.arg(part.items.len() + 1);
            command.arg(&*self.names.counter(part.slot));
            self.names(command, part, |wish| &wish.key);
            command.arg(owner.as_str());
            for wish in &part.items {
                command.arg(millis(wish.ttl));
            }
        });
        let mut answers = vec![None; wishes.len()];
        for (part, said) in answered.await? {
            let said: Vec<Value> = said;
            for (place, said) in part.places.into_iter().zip(&said) {
                answers[place] = answer(said);
            }
        }
        let answers: Option<Vec<Answer>> = answers.into_iter().collect();
        answers.ok_or_else(incomprehensible)
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        let parts = self.parts(claims, |claim| &claim.key);
        let answered = self.call(&RENEW, parts, |part, command| {
            command.arg(part.items.len());
            self.names(command, part, |claim| &claim.key);
            let ttl = part.items[0].ttl;
            let is_common = part.items.iter().all(|claim| claim.ttl == ttl);
            match is_common {
                true => command.arg(millis(ttl)),
                false => command.arg("each"),
            };
            values(command, owner, &part.items);
            if !is_common {
                for claim in &part.items {
                    command.arg(millis(claim.ttl));
                }
            }
        });
        let mut answers = vec![true; claims.len()];
        for (part, lost) in answered.await? {
            let lost: Vec<usize> = lost;
            for at in lost {
                // The script counts from 1.
                let place = at.checked_sub(1).and_then(|at| part.places.get(at));
                answers[*place.ok_or_else(incomprehensible)?] = false;
            }
        }
        Ok(answers)
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        let parts = self.parts(claims, |claim| &claim.key);
        let released = self.call(&RELEASE, parts, |part, command| {
            command.arg(part.items.len());
            self.names(command, part, |claim| &claim.key);
            values(command, owner, &part.items);
        });
        let _: Vec<(_, u64)> = released.await?;
        Ok(())
    }

    async fn held_by(&self, key: &Bytes) -> Result<Option<Holder>, StoreError> {
        let name = &self.name(key);
        let run = |link: Link| async move {
            let arguments = |command: &mut Cmd| {
                command.arg(1).arg(name);
            };
            HELD_BY.run(&link, arguments).await
        };
        let answer: Result<(Option<String>, i64), RedisError> = self.link.repeat(run).await;
        let (value, left) = answer.map_err(|error| StoreError::new(error.to_string()))?;
        match value {
            Some(value) => holder(&value, left).map(Some).ok_or_else(incomprehensible),
            None => Ok(None),
        }
    }
}

impl fmt::Debug for RedisLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLeases")
            .field("namespace", self.names.namespace())
            .field("slots", &self.names.slots())
            .finish_non_exhaustive()
    }
}

/// The items of one call of a script: keys of one slot.
struct Part<'a, T> {
    slot: usize,
    items: Vec<&'a T>,
    /// The place of each item in the request.
    places: Vec<usize>,
}

impl<'a, T> Part<'a, T> {
    fn new(slot: usize) -> Self {
        Self {
            slot,
            items: Vec::new(),
            places: Vec::new(),
        }
    }

    fn push(&mut self, place: usize, item: &'a T) {
        self.items.push(item);
        self.places.push(place);
    }
}

/// Adds the value that the lease of each claim has if it is held as claimed.
fn values(command: &mut Cmd, owner: &Owner, claims: &[&Claim]) {
    let mut value = String::new();
    for claim in claims {
        value.clear();
        write_value(&mut value, owner, claim.token);
        command.arg(value.as_str());
    }
}

/// Writes the value of a lease that this owner holds under this token.
pub(crate) fn write_value(value: &mut String, owner: &Owner, token: Token) {
    // Writing into a string cannot fail.
    let _ = write!(value, "{token} {owner}");
}

/// Parses the value of a lease that lasts for so many milliseconds more.
fn holder(value: &str, left: i64) -> Option<Holder> {
    let (token, owner) = value.split_once(' ')?;
    // A value without an end is not from here.
    let remaining = u64::try_from(left).ok().map(Duration::from_millis);
    Some(Holder::new(owner, Token(token.parse().ok()?), remaining))
}

/// Parses an answer. A token is text: as a number it would be exact only up to 2^53 in a script.
fn answer(said: &Value) -> Option<Answer> {
    match said {
        Value::Int(taken @ ..0) => Some(Answer::Taken {
            remaining: Duration::from_millis((-1 - taken).unsigned_abs()),
        }),
        Value::BulkString(token) => {
            let token = std::str::from_utf8(token).ok()?.parse().ok()?;
            Some(Answer::Granted(Token(token)))
        }
        _ => None,
    }
}

/// Rounds a time to live up, so that a lease lasts at least as long.
pub(crate) fn millis(ttl: Duration) -> u64 {
    let millis = ttl.min(LONGEST).as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX).max(1)
}

pub(crate) fn incomprehensible() -> StoreError {
    StoreError::new("the answer is not from Redis: check the address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_rounded_up() {
        let times = [0, 1, 1_000_000, 1_000_001].map(|nanos| millis(Duration::from_nanos(nanos)));
        assert_eq!(times, [1, 1, 1, 2]);
        assert_eq!(millis(Duration::MAX), 3_153_600_000_000);
    }

    #[test]
    fn a_value_is_a_token_and_an_owner() {
        let second = Some(Duration::from_secs(1));
        let expected = Holder::new("host-7-0a", Token(u64::MAX), second);
        let value = "18446744073709551615 host-7-0a";
        assert_eq!(holder(value, 1_000), Some(expected));
        let endless = holder("1 a", -1).map(|holder| holder.remaining);
        assert_eq!(endless, Some(None));
        for foreign in ["", "1", "a b"] {
            assert_eq!(holder(foreign, 1), None);
        }
    }

    #[test]
    fn answers_are_tokens_or_times() {
        for token in [1, 1_767_225_600_000_000, (1 << 53) + 1, u64::MAX] {
            let said = Value::BulkString(token.to_string().into_bytes());
            assert_eq!(answer(&said), Some(Answer::Granted(Token(token))));
        }
        for millis in [0, 1, 86_400_000] {
            let remaining = Duration::from_millis(millis);
            let said = Value::Int(-1 - millis as i64);
            assert_eq!(answer(&said), Some(Answer::Taken { remaining }));
        }
        // There is no token above the highest.
        for said in [
            Value::Int(7),
            Value::BulkString(b"18446744073709551616".to_vec()),
        ] {
            assert_eq!(answer(&said), None);
        }
    }
}
