//! Why TLS fails, and the errors of rustls that say so.

#[cfg(feature = "tls")]
use std::error::Error;
use std::fmt;
#[cfg(feature = "tls")]
use std::io;
#[cfg(feature = "tls")]
use std::sync::Arc;

#[cfg(feature = "tls")]
use rustls::{AlertDescription as Alert, CertificateError as Certificate, InvalidMessage};

/// Why there is no connection with TLS. An operator must mend each of these.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsFailure {
    /// No authority that is trusted here has signed the certificate of the server.
    UntrustedAuthority,
    /// The certificate of the server has expired.
    Expired,
    /// The certificate of the server is not valid yet: one of the two clocks may be wrong.
    NotYetValid,
    /// The certificate of the server is for other host names than the one in the address.
    WrongHost,
    /// The server does not speak TLS at this port.
    NoTls,
    /// The server takes only connections with TLS, and this one has none.
    OnlyTls,
    /// The server requires a client certificate, or refuses the one it was given.
    ClientCertificate,
    /// Any other reason, such as versions or algorithms that only one of the two knows.
    Other,
}

/// How the settings of a system are called, for what an error says is to be done.
#[derive(Clone, Copy, Debug)]
pub struct TlsNames {
    /// Where the authorities are set that are trusted.
    pub authority: &'static str,
    /// Where the client certificate is set.
    pub identity: &'static str,
    /// How a connection is made with TLS.
    pub with: &'static str,
    /// How one is made without it.
    pub without: &'static str,
}

impl TlsFailure {
    /// Returns what an operator has to do, as the end of an error's text.
    ///
    /// ```
    /// use keylane_connector::tls::{TlsFailure, TlsNames};
    ///
    /// let names = TlsNames {
    ///     authority: "`ca`",
    ///     identity: "`cert`",
    ///     with: "https://",
    ///     without: "http://",
    /// };
    /// let advice = TlsFailure::UntrustedAuthority.advice(names);
    /// assert_eq!(advice, "name the authority of its certificate with `ca`");
    /// ```
    pub fn advice(self, names: TlsNames) -> String {
        match self {
            Self::UntrustedAuthority => {
                format!(
                    "name the authority of its certificate with {}",
                    names.authority
                )
            }
            Self::Expired => "give the server a new certificate".to_owned(),
            Self::NotYetValid => "compare the clocks of the two machines".to_owned(),
            Self::WrongHost => "write a host name of its certificate into the address, or give it \
                                a certificate for this one"
                .to_owned(),
            Self::NoTls => format!(
                "correct the port, switch TLS on at the server, or connect without it: {}",
                names.without
            ),
            Self::OnlyTls => format!("connect with TLS: {}", names.with),
            Self::ClientCertificate => {
                format!(
                    "give a certificate that the server accepts with {}",
                    names.identity
                )
            }
            Self::Other => "let the server speak TLS 1.2 or 1.3".to_owned(),
        }
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UntrustedAuthority => {
                "no trusted authority has signed the certificate of the server"
            }
            Self::Expired => "the certificate of the server has expired",
            Self::NotYetValid => "the certificate of the server is not valid yet",
            Self::WrongHost => "the certificate of the server is for another host name",
            Self::NoTls => "the server does not speak TLS at this port",
            Self::OnlyTls => "the server takes only connections with TLS",
            Self::ClientCertificate => {
                "the server requires a client certificate, or refuses the one it was given"
            }
            Self::Other => "client and server do not agree on TLS",
        })
    }
}

#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
impl TlsFailure {
    /// Finds the error of rustls in an error of a client or among its causes, and returns what it
    /// means; `None` if there is no such error.
    ///
    /// ```
    /// use std::io;
    ///
    /// use keylane_connector::tls::TlsFailure;
    ///
    /// let error = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
    /// let error = io::Error::other(error);
    /// assert_eq!(TlsFailure::of(&error), Some(TlsFailure::Expired));
    /// ```
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Some(of_rustls(error));
            }
            next = inside(error).or_else(|| error.source());
        }
        None
    }
}

/// Returns the error that another one only wraps. `source` of these returns the cause of that one,
/// and leaves it out.
#[cfg(feature = "tls")]
fn inside<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return error.get_ref().map(|error| error as _);
    }
    let shared = error.downcast_ref::<Arc<dyn Error + Send + Sync>>();
    shared.map(|error| &**error as _)
}

#[cfg(feature = "tls")]
fn of_rustls(error: &rustls::Error) -> TlsFailure {
    use rustls::Error as E;
    match error {
        E::InvalidCertificate(error) => of_certificate(error),
        E::AlertReceived(alert) => of_alert(*alert),
        // What came instead of an answer to the handshake.
        E::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::InvalidEmptyPayload
            | InvalidMessage::MessageTooLarge
            | InvalidMessage::UnknownProtocolVersion,
        ) => TlsFailure::NoTls,
        _ => TlsFailure::Other,
    }
}

#[cfg(feature = "tls")]
fn of_certificate(error: &Certificate) -> TlsFailure {
    match error {
        // The second one is of an authority that has the name of a trusted one, and another key.
        Certificate::UnknownIssuer | Certificate::BadSignature => TlsFailure::UntrustedAuthority,
        Certificate::Expired | Certificate::ExpiredContext { .. } => TlsFailure::Expired,
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            TlsFailure::NotYetValid
        }
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
            TlsFailure::WrongHost
        }
        _ => TlsFailure::Other,
    }
}

/// Returns what a server says with an alert. About certificates it can only speak of the client's.
#[cfg(feature = "tls")]
fn of_alert(alert: Alert) -> TlsFailure {
    match alert {
        Alert::CertificateRequired
        | Alert::NoCertificate
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied => TlsFailure::ClientCertificate,
        _ => TlsFailure::Other,
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use rustls::Error as E;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn errors_of_rustls_say_what_an_operator_must_mend() {
        use TlsFailure as F;
        let (at, name) = (
            UnixTime::since_unix_epoch(std::time::Duration::ZERO),
            ServerName::try_from("a").unwrap(),
        );
        let certificate = E::InvalidCertificate;
        for (error, failure) in [
            (
                certificate(Certificate::UnknownIssuer),
                F::UntrustedAuthority,
            ),
            (
                certificate(Certificate::BadSignature),
                F::UntrustedAuthority,
            ),
            (certificate(Certificate::Expired), F::Expired),
            (
                certificate(Certificate::ExpiredContext {
                    time: at,
                    not_after: at,
                }),
                F::Expired,
            ),
            (certificate(Certificate::NotValidYet), F::NotYetValid),
            (
                certificate(Certificate::NotValidYetContext {
                    time: at,
                    not_before: at,
                }),
                F::NotYetValid,
            ),
            (certificate(Certificate::NotValidForName), F::WrongHost),
            (
                certificate(Certificate::NotValidForNameContext {
                    expected: name,
                    presented: Vec::new(),
                }),
                F::WrongHost,
            ),
            (certificate(Certificate::Revoked), F::Other),
            (
                E::InvalidMessage(InvalidMessage::InvalidContentType),
                F::NoTls,
            ),
            (
                E::AlertReceived(Alert::CertificateRequired),
                F::ClientCertificate,
            ),
            (
                E::AlertReceived(Alert::BadCertificate),
                F::ClientCertificate,
            ),
            (E::AlertReceived(Alert::UnknownCA), F::ClientCertificate),
            (E::AlertReceived(Alert::ProtocolVersion), F::Other),
        ] {
            assert_eq!(TlsFailure::of(&error), Some(failure), "{error}");
        }
    }

    /// A client's error, with a cause.
    #[derive(Debug)]
    struct Outer(io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("it fails")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn an_error_of_rustls_is_found_among_the_causes() {
        let expired = || E::InvalidCertificate(Certificate::Expired);
        let outer = Outer(io::Error::new(io::ErrorKind::InvalidData, expired()));
        assert_eq!(TlsFailure::of(&outer), Some(TlsFailure::Expired));
        let shared: Arc<dyn Error + Send + Sync> = Arc::new(io::Error::other(expired()));
        assert_eq!(TlsFailure::of(&shared), Some(TlsFailure::Expired));
        assert_eq!(TlsFailure::of(&Outer(io::Error::other("another"))), None);
    }
}
