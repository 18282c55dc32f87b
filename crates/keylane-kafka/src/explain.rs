//! Says what is wrong with TLS or the user at a broker, where the client does not.

#[cfg(feature = "tls")]
use std::time::Duration;

use keylane_connector::tls::TlsFailure;
#[cfg(feature = "tls")]
use keylane_connector::tls::{find_failure, host_and_port, speaks_tls};

use crate::error::KafkaSourceError;
use crate::refusal::{Refusal, Why};

/// How long a broker may take for a handshake.
#[cfg(feature = "tls")]
const HANDSHAKE: Duration = Duration::from_secs(2);

/// Returns the error for what a client with these properties has said. Blocks the thread for as
/// long as a handshake takes, if the client does not say what is wrong with a certificate.
pub(super) fn explain<'a>(
    refusal: Refusal,
    property: impl Fn(&str) -> Option<&'a str>,
) -> KafkaSourceError {
    let Refusal { broker, why } = refusal;
    match why {
        Why::User(why) => KafkaSourceError::Denied { broker, why },
        Why::Tls(failure) => KafkaSourceError::Tls { broker, failure },
        Why::Certificate => KafkaSourceError::Tls {
            failure: look(&broker, property).unwrap_or(TlsFailure::UntrustedAuthority),
            broker,
        },
    }
}

/// Looks at the certificate of a broker, and returns what is wrong with it.
#[cfg(feature = "tls")]
fn look<'a>(broker: &str, property: impl Fn(&str) -> Option<&'a str>) -> Option<TlsFailure> {
    let server = host_and_port(broker, None)?;
    let certificates = super::certificates::certificates(property)?;
    // This is a thread of the client, which has no runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    runtime.block_on(find_failure(server, &certificates, &[], HANDSHAKE))
}

/// Returns the error for brokers that a client without TLS does not reach, if the first one speaks
/// TLS: the client waits for an answer that it could read.
#[cfg(feature = "tls")]
pub(crate) async fn only_tls(brokers: &str) -> Option<KafkaSourceError> {
    let broker = brokers.split(',').next()?.trim();
    let speaks = speaks_tls(host_and_port(broker, None)?, HANDSHAKE).await;
    speaks.then(|| KafkaSourceError::Tls {
        broker: broker.to_owned(),
        failure: TlsFailure::OnlyTls,
    })
}

/// Without TLS it is not known.
#[cfg(not(feature = "tls"))]
pub(crate) async fn only_tls(_: &str) -> Option<KafkaSourceError> {
    None
}

/// Without TLS there is no certificate.
#[cfg(not(feature = "tls"))]
fn look<'a>(_: &str, _: impl Fn(&str) -> Option<&'a str>) -> Option<TlsFailure> {
    None
}
