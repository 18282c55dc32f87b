//! Authorities and certificates of a test, and the files that a server reads.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::ServerError;

/// The years in which a certificate is valid. These tests do not outlive the second one.
const VALID: (i32, i32) = (2020, 2100);

/// An authority of a test. It signs certificates, with keys that are new in each run.
///
/// # Examples
///
/// ```no_run
/// # async fn test() -> Result<(), testkit_servers::ServerError> {
/// use testkit_servers::{Authority, Redis, RedisKind, ServerTls};
///
/// let authority = Authority::new("shop");
/// let server = Redis::start(RedisKind::Redis7).await?;
/// let port = server.serve_tls(&ServerTls::new(authority.server())).await?;
/// # let _ = port;
/// # Ok(())
/// # }
/// ```
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate.
    pub pem: String,
    /// The key, without a password.
    pub key: String,
}

/// What a server shows to its clients, and what it requires of them.
#[derive(Clone)]
pub struct ServerTls {
    certificate: Certificate,
    /// The authority that must have signed the certificates of clients, in PEM.
    clients: Option<String>,
}

impl Authority {
    /// Creates an authority with this name.
    ///
    /// # Panics
    ///
    /// Panics if the system has no random numbers.
    pub fn new(name: &str) -> Self {
        let mut its = parameters(&[], name, VALID);
        its.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        its.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let created = CertifiedIssuer::self_signed(its, key());
        Self(created.expect("an authority can sign itself"))
    }

    /// Returns the certificate of the authority, which a client must trust.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate of a server on this machine, for `127.0.0.1` and `localhost`.
    pub fn server(&self) -> Certificate {
        self.sign(&["127.0.0.1", "localhost"], "server", VALID)
    }

    /// Signs one that has expired.
    pub fn expired_server(&self) -> Certificate {
        self.sign(&["127.0.0.1", "localhost"], "server", (2020, 2021))
    }

    /// Signs one for another host name.
    pub fn server_at(&self, host: &str) -> Certificate {
        self.sign(&[host], "server", VALID)
    }

    /// Signs a certificate of a client with this name.
    pub fn client(&self, name: &str) -> Certificate {
        self.sign(&[], name, VALID)
    }

    fn sign(&self, hosts: &[&str], name: &str, valid: (i32, i32)) -> Certificate {
        let mut its = parameters(hosts, name, valid);
        its.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // A server may be a client of others of its cluster.
        its.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if !hosts.is_empty() {
            its.extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let key = key();
        let signed = its.signed_by(&key, &self.0);
        Certificate {
            pem: signed.expect("an authority can sign").pem(),
            key: key.serialize_pem(),
        }
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the system has random numbers")
}

fn parameters(hosts: &[&str], name: &str, (from, until): (i32, i32)) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut its = CertificateParams::new(hosts).expect("hosts are names or addresses");
    its.distinguished_name.push(DnType::CommonName, name);
    its.not_before = date_time_ymd(from, 1, 1);
    its.not_after = date_time_ymd(until, 1, 1);
    its
}

impl ServerTls {
    /// Shows this certificate, and requires none of clients.
    pub fn new(certificate: Certificate) -> Self {
        Self {
            certificate,
            clients: None,
        }
    }

    pub(crate) fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns the authority of the clients, in PEM.
    pub(crate) fn clients(&self) -> Option<&str> {
        self.clients.as_deref()
    }

    /// Requires certificates of clients that this authority has signed.
    #[must_use]
    pub fn require_clients_of(mut self, authority: &Authority) -> Self {
        self.clients = Some(authority.pem());
        self
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

/// Leaves the key out.
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate")
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("requires_clients", &self.clients.is_some())
            .finish_non_exhaustive()
    }
}

/// The files of a server.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The authority of the clients; `None` if they need no certificate.
    pub(crate) clients: Option<PathBuf>,
}

impl Files {
    /// Writes the files into the folder of a server, for its user. `name` is a part of theirs.
    pub(crate) fn write(folder: &Path, name: &str, tls: &ServerTls) -> Result<Self, ServerError> {
        let path = |what: &str| folder.join(format!("{name}.{what}"));
        let files = Self {
            certificate: path("pem"),
            key: path("key"),
            clients: tls.clients.is_some().then(|| path("clients")),
        };
        let write = || {
            let owner = fs::metadata(folder)?;
            let write = |path: &Path, text: &str| {
                fs::write(path, text)?;
                // Some servers refuse a key that others can read.
                fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
                chown(path, Some(owner.uid()), Some(owner.gid()))
            };
            write(&files.certificate, &tls.certificate.pem)?;
            write(&files.key, &tls.certificate.key)?;
            match (&files.clients, &tls.clients) {
                (Some(path), Some(pem)) => write(path, pem),
                _ => Ok(()),
            }
        };
        let written: io::Result<()> = write();
        written.map_err(ServerError::system("write the certificates of the server"))?;
        Ok(files)
    }
}
