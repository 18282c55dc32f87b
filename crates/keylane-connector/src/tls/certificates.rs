//! The certificates that a client needs.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::ConfigError;

/// The certificates for connections with TLS, in PEM: the authorities that this process trusts, and
/// the one by which a server knows it.
///
/// Without an authority of your own, the authorities of Mozilla's list are trusted, which is a part
/// of the program. The host name in the certificate of the server is always compared with that of
/// the address.
///
/// # Examples
///
/// ```no_run
/// use keylane_connector::tls::Certificates;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let certificates = Certificates::new()
///     .authority(std::fs::read("/etc/tls/ca.pem")?)?
///     .identity(std::fs::read("/etc/tls/client.pem")?, std::fs::read("/etc/tls/client.key")?)?;
/// # let _ = certificates;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Certificates {
    authority: Option<Vec<u8>>,
    identity: Option<Identity>,
}

/// A certificate of this process, and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Identity {
    /// Returns the certificate, with those between it and the authority.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Returns the private key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl Certificates {
    /// Trusts the authorities of Mozilla's list, and has no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in this PEM text, and no others.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if there is no certificate in it, or one that cannot be read.
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Result<Self, ConfigError> {
        let pem = pem.into();
        roots(&pem)?;
        self.authority = Some(pem);
        Ok(self)
    }

    /// Shows this certificate to the servers. Behind it may be those between it and the authority.
    /// The key must not have a password.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if one of the two cannot be read, or the key is not that of the certificate.
    pub fn identity(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Result<Self, ConfigError> {
        self.identity = Some(Identity {
            certificate: certificate.into(),
            key: key.into(),
        });
        // It compares the two.
        self.client()?;
        Ok(self)
    }

    /// Returns the PEM text of the authorities; `None` for Mozilla's list.
    pub fn authority_pem(&self) -> Option<&[u8]> {
        self.authority.as_deref()
    }

    /// Returns the client certificate.
    pub fn client_identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Returns what a handshake needs.
    pub(crate) fn client(&self) -> Result<ClientConfig, ConfigError> {
        let roots = match &self.authority {
            Some(pem) => roots(pem)?,
            None => RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        };
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| ConfigError::new("tls", format!("cannot be used: {error}")))?
            .with_root_certificates(roots);
        let Some(identity) = &self.identity else {
            return Ok(client.with_no_client_auth());
        };
        let chain = certificates(&identity.certificate, "identity")?;
        let key = PrivateKeyDer::from_pem_slice(&identity.key).map_err(|error| {
            let why =
                format!("has a key that cannot be read: {error}: give it in PEM, unencrypted");
            ConfigError::new("identity", why)
        })?;
        client.with_client_auth_cert(chain, key).map_err(|error| {
            let why = format!("cannot be used: {error}: give a certificate and its own key");
            ConfigError::new("identity", why)
        })
    }
}

/// Leaves the key out.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("has_authority", &self.authority.is_some())
            .field("has_identity", &self.identity.is_some())
            .finish()
    }
}

/// Makes ring the provider of rustls, if this process has not chosen one.
///
/// A client that takes the provider of the process panics if it finds two, and none chosen:
/// another crate of the program may have switched on the other one.
pub fn set_provider() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        let _ = ring::default_provider().install_default();
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "authority")? {
        roots.add(certificate).map_err(|error| {
            let why = format!("has a certificate that cannot be read: {error}");
            ConfigError::new("authority", why)
        })?;
    }
    Ok(roots)
}

/// Reads the certificates of a PEM text: one at least.
fn certificates(
    pem: &[u8],
    setting: &'static str,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| {
        let why = format!("has a certificate that cannot be read: {error}: give it in PEM");
        ConfigError::new(setting, why)
    })?;
    match read.is_empty() {
        true => Err(ConfigError::new(
            setting,
            "has no certificate: give it in PEM",
        )),
        false => Ok(read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused_with_the_setting() {
        for pem in [
            "",
            "secret",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        ] {
            let error = Certificates::new().authority(pem).unwrap_err();
            assert_eq!(error.setting(), "authority");
            assert!(!error.to_string().contains("secret"), "{error}");
            let error = Certificates::new().identity(pem, "secret").unwrap_err();
            assert_eq!(error.setting(), "identity");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
