//! The certificates of the client, from its properties.

use std::fs;

use keylane_connector::tls::Certificates;

/// Where OpenSSL has the authorities that a system trusts, in most distributions.
const OF_SYSTEM: [&str; 2] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
];

/// Returns the certificates of a client with these properties, as far as they are in PEM and have
/// no password.
pub(crate) fn certificates<'a>(property: impl Fn(&str) -> Option<&'a str>) -> Option<Certificates> {
    let pem = |text: &str, location: &str| match property(text) {
        Some(text) => Some(text.as_bytes().to_vec()),
        None => fs::read(property(location)?).ok(),
    };
    let of_system = || OF_SYSTEM.iter().find_map(|path| fs::read(path).ok());
    let certificates = match pem("ssl.ca.pem", "ssl.ca.location").or_else(of_system) {
        Some(authority) => Certificates::new().authority(authority).ok()?,
        None => Certificates::new(),
    };
    let certificate = pem("ssl.certificate.pem", "ssl.certificate.location");
    let own = certificate.zip(pem("ssl.key.pem", "ssl.key.location"));
    Some(match own {
        Some((certificate, key)) => {
            let known = certificates.clone().identity(certificate, key);
            known.unwrap_or(certificates)
        }
        None => certificates,
    })
}
