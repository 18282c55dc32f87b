//! Where etcd is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
#[cfg(feature = "tls")]
use keylane_connector::tls::Certificates;
use keylane_connector::{ConfigError, ErrorKind};

use crate::error::EtcdError;
#[cfg(feature = "tls")]
use crate::tls;

/// How long it may take to connect, unless the options say otherwise.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a check waits for an answer.
const ANSWER: Duration = Duration::from_secs(10);

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
    #[cfg(feature = "tls")]
    certificates: Certificates,
}

impl Etcd {
    /// Names the servers, by an address for each one: `http://host:port`, or `https://host:port`
    /// with TLS, for which the feature `tls` must be on. It does not connect.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] without an address, if some have TLS and others not, or if the feature is
    /// off.
    pub fn at(addresses: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, ConfigError> {
        let addresses = Vec::from_iter(addresses.into_iter().map(Into::into));
        if addresses.is_empty() {
            return Err(ConfigError::new("addresses", "need one server at least"));
        }
        let with_tls = addresses.iter().filter(|one| has_tls(one)).count();
        if with_tls > 0 && with_tls < addresses.len() {
            let why = "must all begin with https://, or none of them";
            return Err(ConfigError::new("addresses", why));
        }
        if with_tls > 0 && !cfg!(feature = "tls") {
            let why = "begin with https://: enable the feature `tls` of keylane-etcd";
            return Err(ConfigError::new("addresses", why));
        }
        Ok(Self {
            place: place_of(&addresses).into(),
            addresses,
            options: ConnectOptions::new().with_connect_timeout(CONNECT),
            #[cfg(feature = "tls")]
            certificates: Certificates::new(),
        })
    }

    /// Sets the options of the client: a user and its password, time limits. By default a
    /// connection may take 5 seconds, and there is no user.
    ///
    /// A token of a user that has expired is renewed, and a server without a leader refuses its
    /// calls, whatever the options say. For TLS use [`certificates`](Self::certificates): it
    /// replaces what the options have of it.
    #[must_use]
    pub fn options(mut self, options: ConnectOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the certificates for connections with TLS: the authorities that are trusted, and the
    /// certificate by which the servers know this process. Without this call the authorities of
    /// Mozilla's list are trusted, and there is no client certificate.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the addresses do not begin with `https://`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use keylane_etcd::{Certificates, Etcd};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let certificates = Certificates::new()
    ///     .authority(std::fs::read("/etc/etcd/ca.pem")?)?
    ///     .identity(std::fs::read("/etc/etcd/own.pem")?, std::fs::read("/etc/etcd/own.key")?)?;
    /// let etcd = Etcd::at(["https://etcd-1:2379"])?.certificates(certificates)?;
    /// # let _ = etcd;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn certificates(mut self, certificates: Certificates) -> Result<Self, ConfigError> {
        if !self.has_tls() {
            let why = "need TLS: begin each address with https://";
            return Err(ConfigError::new("certificates", why));
        }
        self.certificates = certificates;
        Ok(self)
    }

    /// Connects, and asks a server for an answer. Leases and elections connect by themselves, and
    /// their errors are texts: this says what kind of error it is, at the start of a program.
    ///
    /// # Errors
    ///
    /// [`EtcdError`] if no server answers: its [`kind`](EtcdError::kind) is
    /// [`ErrorKind::Tls`](crate::ErrorKind::Tls) with what is to be mended, if it is because of
    /// TLS.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the connection is closed.
    pub async fn check(&self) -> Result<(), EtcdError> {
        let asked = async {
            let mut client = self.connect().await?;
            // Each user may ask for this.
            client.member_list().await?;
            Ok::<_, EtcdError>(())
        };
        let asked = tokio::time::timeout(ANSWER, asked).await;
        let asked = asked.unwrap_or_else(|_| {
            let why = format!("no answer within {ANSWER:?}");
            Err(EtcdError::new(ErrorKind::Unreachable, why))
        });
        asked.map_err(|error| error.at(&self.place))
    }

    #[cfg(feature = "tls")]
    fn has_tls(&self) -> bool {
        self.addresses.iter().all(|one| has_tls(one))
    }

    /// Connects. Without a user, it begins to connect at the first call.
    pub(crate) async fn connect(&self) -> Result<Client, EtcdError> {
        let options = self.options.clone();
        let options = options
            .with_auto_token_refresh(true)
            .with_require_leader(true);
        #[cfg(feature = "tls")]
        let options = match self.has_tls() {
            true => {
                let failure = tls::failure(places(&self.addresses), &self.certificates).await;
                let failed = |failure| Err(EtcdError::tls(failure).at(&self.place));
                failure.map_or(Ok(()), failed)?;
                tls::with(options, &self.certificates)
            }
            false => options,
        };
        let connected = Client::connect(&self.addresses, Some(options)).await;
        connected.map_err(|error| EtcdError::from(error).at(&self.place))
    }

    /// Returns the hosts and ports of the servers.
    pub(crate) fn place(&self) -> Arc<str> {
        Arc::clone(&self.place)
    }
}

fn place_of(addresses: &[String]) -> String {
    places(addresses).collect::<Vec<_>>().join(", ")
}

/// The hosts and ports in addresses, without users and their passwords, and without paths.
fn places(addresses: &[String]) -> impl Iterator<Item = &str> {
    addresses.iter().map(|address| {
        let rest = address
            .split_once("://")
            .map_or(&**address, |(_, rest)| rest);
        let host = rest.split_once('/').map_or(rest, |(host, _)| host);
        host.rsplit_once('@').map_or(host, |(_, host)| host)
    })
}

fn has_tls(address: &str) -> bool {
    address.starts_with("https://")
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
