//! Where etcd is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use keylane_connector::ConfigError;

use crate::error::EtcdError;

/// How long it may take to connect, unless the options say otherwise.
const CONNECT: Duration = Duration::from_secs(5);

/// The servers of an etcd cluster: their addresses, and how to connect to them.
///
/// # Examples
///
/// ```
/// use keylane_etcd::{Etcd, etcd_client::ConnectOptions};
///
/// # fn main() -> Result<(), keylane_etcd::ConfigError> {
/// let etcd = Etcd::at(["http://etcd-1:2379", "http://etcd-2:2379", "http://etcd-3:2379"])?
///     .options(ConnectOptions::new().with_user("accounts", "secret"));
/// # let _ = etcd;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Etcd {
    addresses: Vec<String>,
    /// Their hosts and ports, for errors.
    place: Arc<str>,
    options: ConnectOptions,
}

impl Etcd {
    /// Names the servers, by an address for each one. It does not connect.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] without an address.
    pub fn at(addresses: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, ConfigError> {
        let addresses = Vec::from_iter(addresses.into_iter().map(Into::into));
        if addresses.is_empty() {
            return Err(ConfigError::new("addresses", "need one server at least"));
        }
        Ok(Self {
            place: place_of(&addresses).into(),
            addresses,
            options: ConnectOptions::new().with_connect_timeout(CONNECT),
        })
    }

    /// Sets the options of the client: a user and its password, TLS, time limits. By default a
    /// connection may take 5 seconds, and there is no user.
    ///
    /// A token of a user that has expired is renewed, and a server without a leader refuses its
    /// calls, whatever the options say. TLS needs a feature of the crate `etcd-client`, such as
    /// `tls`: name that crate in your own `Cargo.toml`.
    #[must_use]
    pub fn options(mut self, options: ConnectOptions) -> Self {
        self.options = options;
        self
    }

    /// Connects. Without a user, it begins to connect at the first call.
    pub(crate) async fn connect(&self) -> Result<Client, EtcdError> {
        let options = self.options.clone();
        let options = options
            .with_auto_token_refresh(true)
            .with_require_leader(true);
        let connected = Client::connect(&self.addresses, Some(options)).await;
        connected.map_err(|error| EtcdError::from(error).at(&self.place))
    }

    /// Returns the hosts and ports of the servers.
    pub(crate) fn place(&self) -> Arc<str> {
        Arc::clone(&self.place)
    }
}

/// The hosts and ports in addresses, without a user and its password, and without a path.
fn place_of(addresses: &[String]) -> String {
    let places = addresses.iter().map(|address| {
        let rest = address
            .split_once("://")
            .map_or(&**address, |(_, rest)| rest);
        let host = rest.split_once('/').map_or(rest, |(host, _)| host);
        host.rsplit_once('@').map_or(host, |(_, host)| host)
    });
    places.collect::<Vec<_>>().join(", ")
}

/// Leaves the options out: they have the password.
impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_hosts_and_ports_and_no_password() {
        let addresses = [
            "http://etcd-1:2379",
            "https://user:secret@etcd-2:2379/",
            "[::1]:2379",
        ];
        let place = place_of(&addresses.map(str::to_owned));
        assert_eq!(place, "etcd-1:2379, etcd-2:2379, [::1]:2379");
    }
}
