//! Where etcd is.

use std::fmt;
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
        Ok(Client::connect(&self.addresses, Some(options)).await?)
    }
}

/// Leaves the options out: they have the password.
impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}
