//! The servers, and the settings of a session.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use keylane_connector::ConfigError;
use zookeeper_client::{Acls, Client, Connector};

/// The shortest session time-out that makes sense.
const SHORTEST: Duration = Duration::from_millis(100);

/// The longest: the protocol has 31 bits for its milliseconds.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// The longest time for which a connection may be silent.
const SILENCE: Duration = Duration::from_secs(4);

/// The servers of an ensemble, and the settings of the sessions with it.
///
/// Nothing is connected before the first call of a store.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_zookeeper::ZooKeeper;
///
/// # fn main() -> Result<(), keylane_zookeeper::ConfigError> {
/// let zookeeper = ZooKeeper::at("zk-1:2181,zk-2:2181,zk-3:2181")?
///     .session_timeout(Duration::from_secs(30))?
///     .digest("orders", "secret")?;
/// # let _ = zookeeper;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ZooKeeper {
    hosts: String,
    session_timeout: Duration,
    tick: Duration,
    user: Option<Vec<u8>>,
}

impl ZooKeeper {
    /// Names the servers: `host:port`, separated by commas. The port is 2181 if it is missing.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if there is none, if there is a scheme, as in `zookeeper://`, or if a path
    /// follows: the store has a root of its own.
    pub fn at(hosts: impl Into<String>) -> Result<Self, ConfigError> {
        let hosts = hosts.into();
        let wrong = |why: &'static str| Err(ConfigError::new("hosts", why));
        if hosts.split(',').any(|host| host.trim().is_empty()) {
            return wrong("must name at least one server, as in `zk-1:2181,zk-2:2181`");
        }
        if hosts.contains("://") {
            return wrong("must have no scheme: write `host:port`, separated by commas");
        }
        if hosts.contains('/') {
            return wrong("must have no path: put it in front of the root of the store");
        }
        Ok(Self {
            hosts,
            session_timeout: Duration::from_secs(20),
            tick: Duration::from_secs(2),
            user: None,
        })
    }

    /// Sets the session time-out: 20 seconds by default. After a crash of this process its leases
    /// last so long, and they can live for at most [`longest_ttl`](Self::longest_ttl).
    ///
    /// The server may choose another one: at least 2 and at most 20 of its ticks, unless it is
    /// configured otherwise. Times to live are compared with that one.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it is shorter than 100 milliseconds or longer than 24 days.
    pub fn session_timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        if !(SHORTEST..=LONGEST).contains(&timeout) {
            let why = "must be from 100 milliseconds to 24 days";
            return Err(ConfigError::new("session_timeout", why));
        }
        self.session_timeout = timeout;
        Ok(self)
    }

    /// Sets the tick of the servers, as `tickTime` in their configuration: 2 seconds by default, as
    /// there. A client cannot ask for it. If it is set too short here, a server that dies can end a
    /// lease early.
    pub fn server_tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the user and the password, of the scheme `digest`. The nodes of the store are then open
    /// to this user alone: every process that shares them needs the same. Without a user they are
    /// open to all.
    ///
    /// The password is sent as it is: there is no TLS.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the user is empty or has a colon.
    pub fn digest(mut self, user: &str, password: &str) -> Result<Self, ConfigError> {
        if user.is_empty() || user.contains(':') {
            let why = "must not be empty, and has no colon";
            return Err(ConfigError::new("user", why));
        }
        self.user = Some(format!("{user}:{password}").into_bytes());
        Ok(self)
    }

    /// Returns the longest time to live of a lease, if the server accepts the session time-out:
    /// three quarters of it, less half a tick.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane_zookeeper::ZooKeeper;
    ///
    /// # fn main() -> Result<(), keylane_zookeeper::ConfigError> {
    /// let zookeeper = ZooKeeper::at("zk-1")?;
    /// assert_eq!(zookeeper.longest_ttl(), Duration::from_secs(14));
    /// # Ok(())
    /// # }
    /// ```
    pub fn longest_ttl(&self) -> Duration {
        longest_ttl(self.session_timeout, self.tick)
    }

    /// Returns the longest time to live in a session with this time-out.
    pub(crate) fn longest_ttl_in(&self, timeout: Duration) -> Duration {
        longest_ttl(timeout, self.tick)
    }

    pub(crate) fn hosts(&self) -> &str {
        &self.hosts
    }

    /// Returns who may do what with the nodes.
    pub(crate) fn acls(&self) -> Acls<'static> {
        match self.user {
            Some(_) => Acls::creator_all(),
            None => Acls::anyone_all(),
        }
    }

    /// Returns what connects once to each server, until one answers.
    pub(crate) fn connector(&self) -> Connector {
        let silence = (self.session_timeout * 2 / 5).min(SILENCE);
        let connector = Client::connector()
            .with_session_timeout(self.session_timeout)
            .with_fail_eagerly()
            // The client sends something at least every half of this.
            .with_connection_timeout(silence);
        match &self.user {
            Some(user) => connector.with_auth("digest", user),
            None => connector,
        }
    }
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeper")
            .field("hosts", &self.hosts)
            .field("session_timeout", &self.session_timeout)
            .field("server_tick", &self.tick)
            .field("has_user", &self.user.is_some())
            .finish()
    }
}

/// Returns the longest time to live of a lease in a session, so that the session cannot end before
/// a lease whose renewal was confirmed.
///
/// The leader counts the time-out from when it has heard of the client. A server tells it every
/// half tick which clients it has heard; if it dies before, the leader knows only what was told
/// before. The client is silent for at most a fifth of the time-out.
///
/// ```text
/// client heard      again, and a lease renewed        the session ends
///   |────────────────────|──────────────────────────────────|
///   told to the leader   the server dies, untold
///   ├─ T/5 and half a tick ─┤
///   ├──────────────────────── T ────────────────────────────┤
/// ```
///
/// A twentieth of the time-out is left for the network and for busy machines.
fn longest_ttl(timeout: Duration, tick: Duration) -> Duration {
    (timeout * 3 / 4).saturating_sub(tick / 2)
}

/// Checks the root of a store, and returns it.
pub(crate) fn root(root: impl Into<String>) -> Result<String, ConfigError> {
    let root = root.into();
    let wrong = |why: Cow<'static, str>| Err(ConfigError::new("root", why));
    let Some(names) = root.strip_prefix('/') else {
        return wrong("must begin with `/`".into());
    };
    let is_legal = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_graphic();
        !["", ".", ".."].contains(&name) && name.bytes().all(is_plain)
    };
    if let Some(name) = names.split('/').find(|name| !is_legal(name)) {
        return wrong(format!("has a part `{name}`: name each part in visible ASCII").into());
    }
    if names.split('/').next() == Some("zookeeper") {
        return wrong("is below `/zookeeper`, which belongs to the server: take another".into());
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_paths() {
        for good in ["/a", "/shop/orders", "/a.b/c-d"] {
            assert_eq!(root(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "a",
            "/",
            "/a/",
            "/a//b",
            "/.",
            "/a/..",
            "/\u{e4}",
            "/zookeeper/x",
        ] {
            assert!(root(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hosts_are_named_without_a_path() {
        assert!(ZooKeeper::at("a:1,b").is_ok());
        for bad in ["", "a,", ",a", "a/chroot"] {
            assert!(ZooKeeper::at(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_session_lasts_longer_than_its_leases() {
        let seconds = Duration::from_secs;
        assert_eq!(longest_ttl(seconds(20), seconds(2)), seconds(14));
        assert_eq!(longest_ttl(seconds(1), seconds(2)), Duration::ZERO);
    }

    #[test]
    fn a_password_is_not_shown() {
        let zookeeper = ZooKeeper::at("a").unwrap().digest("u", "secret").unwrap();
        assert!(!format!("{zookeeper:?}").contains("secret"));
        assert!(ZooKeeper::at("a").unwrap().digest("a:b", "x").is_err());
    }
}
