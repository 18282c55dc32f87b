//! Why a broker and the client do not come together, read from what the client says: it has texts
//! for TLS and for users, and no codes.

use keylane_connector::tls::TlsFailure;

/// What the client has said about a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The host and the port.
    pub(crate) broker: String,
    pub(crate) why: Why,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The certificate of the broker. The client does not say what of it.
    Certificate,
    Tls(TlsFailure),
    /// The user, the password or the mechanism, in the words of the client.
    User(String),
}

/// What a TLS handshake that fails begins with.
const HANDSHAKE: &str = "SSL handshake failed: ";

/// What an alert of the broker is called, and each of those that are about a client certificate.
const ALERT: &str = " alert ";
const OF_CERTIFICATES: [&str; 5] = [
    "certificate required",
    "bad certificate",
    "certificate unknown",
    "unknown ca",
    "certificate expired",
];

/// Reads what the client says about a broker: `sasl_ssl://host:port/bootstrap: why (after 3ms …)`.
pub(crate) fn read(said: &str) -> Option<Refusal> {
    let (name, why) = said.split_once(": ")?;
    let why = why.split(" (after ").next().unwrap_or(why);
    let address = name.split_once("://").map_or(name, |(_, address)| address);
    let broker = address.split('/').next().unwrap_or(address).to_owned();
    Some(Refusal {
        broker,
        why: of_words(why)?,
    })
}

fn of_words(why: &str) -> Option<Why> {
    let tells_of_client = |why: &str| {
        let alert = why.split_once(ALERT);
        alert.is_some_and(|(_, alert)| OF_CERTIFICATES.iter().any(|of| alert.starts_with(of)))
    };
    if why.starts_with("SASL ") || why.starts_with("Failed to initialize SASL") {
        return Some(Why::User(why.to_owned()));
    }
    if tells_of_client(why) {
        return Some(Why::Tls(TlsFailure::ClientCertificate));
    }
    if why.contains("certificate verify failed") {
        return Some(Why::Certificate);
    }
    let why = why.strip_prefix(HANDSHAKE)?;
    Some(match why {
        _ if why.contains("connecting to a PLAINTEXT broker listener?") => {
            Why::Tls(TlsFailure::NoTls)
        }
        _ if why.contains("client SSL authentication might be required") => {
            Why::Tls(TlsFailure::ClientCertificate)
        }
        _ => Why::Tls(TlsFailure::Other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those of librdkafka 2.12.1 with OpenSSL 3.0, about Kafka 4.3.
    #[test]
    fn the_words_of_the_client_are_understood() {
        let tls = |failure| Some(Why::Tls(failure));
        let refused = "SASL authentication error: Authentication failed: Invalid username or \
                       password";
        for (said, why) in [
            (
                "SSL handshake failed: ../ssl/statem/statem_clnt.c:1889:\
                 tls_post_process_server_certificate error:0A000086:SSL routines::certificate \
                 verify failed: broker certificate could not be verified, verify that \
                 ssl.ca.location is correctly configured or root CA certificates are installed \
                 (install ca-certificates package) (after 4ms in state SSL_HANDSHAKE)",
                Some(Why::Certificate),
            ),
            (
                "../ssl/statem/statem_clnt.c:1889:tls_post_process_server_certificate \
                 error:0A000086:SSL routines::certificate verify failed (after 3ms in state \
                 SSL_HANDSHAKE)",
                Some(Why::Certificate),
            ),
            (
                "Receive failed: ../ssl/record/rec_layer_s3.c:1601:ssl3_read_bytes \
                 error:0A000412:SSL routines::sslv3 alert bad certificate: SSL alert number 42 \
                 (after 21ms in state APIVERSION_QUERY)",
                tls(TlsFailure::ClientCertificate),
            ),
            (
                "SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to \
                 a PLAINTEXT broker listener? (after 155ms in state SSL_HANDSHAKE)",
                tls(TlsFailure::NoTls),
            ),
            (
                "SASL authentication error: Authentication failed: Invalid username or password \
                 (after 110ms in state AUTH_REQ)",
                Some(Why::User(refused.to_owned())),
            ),
            (
                "Connect to ipv4#127.0.0.1:9093 failed: Connection refused (after 0ms in state \
                 CONNECT)",
                None,
            ),
        ] {
            let found = read(&format!("sasl_ssl://localhost:9093/bootstrap: {said}"));
            assert_eq!(
                found.as_ref().map(|found| &found.why),
                why.as_ref(),
                "{said}"
            );
            assert!(found.is_none_or(|found| found.broker == "localhost:9093"));
        }
        assert_eq!(read("1/1 brokers are down"), None);
    }
}
