//! Says what is wrong with TLS or the user at a broker, where the client does not.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use keylane_connector::lock;
use keylane_connector::tls::TlsFailure;
#[cfg(feature = "tls")]
use keylane_connector::tls::{find_failure, host_and_port, speaks_tls};

use crate::error::KafkaSourceError;
use crate::refusal::{self, Refusal, Why};

/// How long a broker may take for a handshake.
#[cfg(feature = "tls")]
const HANDSHAKE: Duration = Duration::from_secs(2);

/// How long what a client has said of TLS explains that no broker can be reached. It tries each
/// again within this time.
const RECENT: Duration = Duration::from_secs(20);

/// What a client has said of TLS or its user, and what that means.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    said: Mutex<Option<(Instant, Refusal)>>,
    /// Found a moment ago. `None`: nothing is wrong with TLS or the user.
    found: Mutex<Option<(Instant, Option<KafkaSourceError>)>>,
}

impl Heard {
    /// Hears what a client says of a broker.
    pub(crate) fn hear(&self, said: &str) {
        if let Some(refusal) = refusal::read(said) {
            *lock(&self.said) = Some((Instant::now(), refusal));
            // It was not known a moment ago.
            lock(&self.found).take_if(|(_, found)| found.is_none());
        }
    }

    /// Returns what is wrong, and forgets it.
    pub(crate) fn take<'a>(
        &self,
        property: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<KafkaSourceError> {
        let (at, refusal) = lock(&self.said).take()?;
        (at.elapsed() < RECENT).then(|| explain(refusal, property))
    }

    /// Returns why a client with these properties reaches no broker, if that is because of TLS or
    /// the user. Blocks the thread for as long as a handshake takes, once in a while.
    pub(crate) fn why<'a>(
        &self,
        property: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<KafkaSourceError> {
        let mut found = lock(&self.found);
        if let Some((at, found)) = &*found
            && at.elapsed() < RECENT
        {
            return found.clone();
        }
        let why = self.take(&property).or_else(|| no_tls(property));
        *found = Some((Instant::now(), why.clone()));
        why
    }
}

/// Whether connections of a client with these properties have TLS.
pub(crate) fn has_tls<'a>(property: impl Fn(&str) -> Option<&'a str>) -> bool {
    let protocol = property("security.protocol");
    protocol.is_some_and(|protocol| protocol.to_ascii_lowercase().ends_with("ssl"))
}

/// Returns the error for brokers that speak TLS to a client without it.
#[cfg(feature = "tls")]
fn no_tls<'a>(property: impl Fn(&str) -> Option<&'a str>) -> Option<KafkaSourceError> {
    let brokers = property("bootstrap.servers").filter(|_| !has_tls(&property))?;
    block_on(only_tls(brokers))?
}

#[cfg(not(feature = "tls"))]
fn no_tls<'a>(_: impl Fn(&str) -> Option<&'a str>) -> Option<KafkaSourceError> {
    None
}

/// Returns the error for what a client with these properties has said. Blocks the thread for as
/// long as a handshake takes, if the client does not say what is wrong with a certificate.
pub(crate) fn explain<'a>(
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
    let certificates = crate::certificates::certificates(property)?;
    block_on(find_failure(server, &certificates, &[], HANDSHAKE))?
}

/// Waits in a thread of a client, or for one, which has no runtime.
#[cfg(feature = "tls")]
fn block_on<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    Some(runtime.enable_all().build().ok()?.block_on(future))
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
