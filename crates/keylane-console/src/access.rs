//! Who may ask. Pure: the rules see a request's head, and nothing else.
//!
//! A page of the world can make a browser ask this service: under a name that leads here (its
//! `Host` is foreign), or from its own origin (`Origin` and `Sec-Fetch-Site` are foreign). Both are
//! refused, for reading too.

use std::net::SocketAddr;

use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::uri::Authority;
use axum::http::{Method, Uri, Version};

/// The header that every request with an effect has. No form and no plain link can send it.
pub(crate) const OWN_HEADER: &str = "x-keylane-console";

/// Headers by which a proxy says that it asks for another machine, beside those that begin with
/// [`FORWARDED`]. A proxy may add none: then it cannot be told from a program of this machine.
const PROXY: [&str; 14] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-envoy-external-address",
    "x-amzn-trace-id",
    "true-client-ip",
    "cf-connecting-ip",
    "cdn-loop",
    "fastly-client-ip",
    "fly-client-ip",
];

/// `x-forwarded-for`, `-proto`, `-host`, `-port`, `-server` and so on.
const FORWARDED: &str = "x-forwarded";

/// Which hosts are ours. Empty: this machine only.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) hosts: Vec<String>,
}

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) version: Version,
    pub(crate) headers: &'a HeaderMap,
    /// The peer, if the server says who it is.
    pub(crate) peer: Option<SocketAddr>,
    /// Whether it is the page or one of its files, which a link of another site may open.
    pub(crate) is_page: bool,
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    Host,
    /// The peer is on another machine, or a proxy asks for it.
    Peer,
    /// The server does not say who the peer is.
    UnknownPeer,
    Origin,
    /// The header of our own is missing.
    Plain,
}

impl Rules {
    /// # Errors
    ///
    /// The first rule that the request breaks.
    pub(crate) fn check(&self, asked: Asked<'_>) -> Result<(), Foreign> {
        let host = host(asked).ok_or(Foreign::Host)?;
        if !is_this_machine(&host) && !self.is_listed(&host) {
            return Err(Foreign::Host);
        }
        if self.hosts.is_empty() {
            from_this_machine(asked)?;
        }
        from_our_origin(asked, &host)
    }

    fn is_listed(&self, host: &Authority) -> bool {
        let is = |listed: &&String| {
            listed.eq_ignore_ascii_case(host.as_str()) || listed.eq_ignore_ascii_case(host.host())
        };
        // A name with a user in front of it is no host.
        !host.as_str().contains('@') && self.hosts.iter().any(|listed| is(&listed))
    }
}

/// The host that the client has asked for, if there is exactly one.
pub(crate) fn host(asked: Asked<'_>) -> Option<Authority> {
    if let Some(authority) = asked.uri.authority() {
        return Some(authority.clone());
    }
    let host = only(asked.headers, header::HOST.as_str())?;
    Authority::try_from(host).ok()
}

/// Whether a host is a name of this machine, for this machine.
pub(crate) fn is_this_machine(host: &Authority) -> bool {
    !host.as_str().contains('@') && matches!(host.host(), "127.0.0.1" | "localhost" | "[::1]")
}

fn from_this_machine(asked: Asked<'_>) -> Result<(), Foreign> {
    let peer = asked.peer.ok_or(Foreign::UnknownPeer)?;
    if peer.ip().to_canonical().is_loopback() && !is_forwarded(asked) {
        Ok(())
    } else {
        Err(Foreign::Peer)
    }
}

/// Whether a proxy asks, as far as that is seen. Proxies ask in HTTP/1.0, as nginx does unless it
/// is told otherwise or is new; browsers and today's clients do not.
pub(crate) fn is_forwarded(asked: Asked<'_>) -> bool {
    let mut names = asked.headers.keys().map(HeaderName::as_str);
    asked.version < Version::HTTP_11
        || names.any(|name| name.starts_with(FORWARDED) || PROXY.contains(&name))
}

fn from_our_origin(asked: Asked<'_>, host: &Authority) -> Result<(), Foreign> {
    let headers = asked.headers;
    let origin = match headers.contains_key(header::ORIGIN) {
        true => Some(only(headers, header::ORIGIN.as_str()).ok_or(Foreign::Origin)?),
        false => None,
    };
    let is_ours = |origin: &str| {
        let rest = origin
            .strip_prefix("http://")
            .or(origin.strip_prefix("https://"));
        rest == Some(host.as_str())
    };
    if origin.is_some_and(|origin| !is_ours(origin)) {
        return Err(Foreign::Origin);
    }
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    let may_come = match site {
        None | Some(b"same-origin") => true,
        // The address bar, and a link of another site to the page.
        Some(b"none") => asked.method.is_safe(),
        Some(_) => asked.is_page && asked.method.is_safe(),
    };
    if !may_come {
        return Err(Foreign::Origin);
    }
    if asked.method.is_safe() {
        return Ok(());
    }
    if origin.is_none() && site.is_none() {
        return Err(Foreign::Origin);
    }
    if only(headers, OWN_HEADER) == Some("1") {
        Ok(())
    } else {
        Err(Foreign::Plain)
    }
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none());
    value?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const HERE: (&str, &str) = ("host", "localhost:3000");
    const OURS: (&str, &str) = ("origin", "http://localhost:3000");
    const OWN: (&str, &str) = (OWN_HEADER, "1");

    fn asked(
        rules: &[&str],
        peer: Option<&str>,
        method: &Method,
        headers: &[(&str, &str)],
    ) -> Result<(), Foreign> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let hosts = rules.iter().map(|host| (*host).to_owned()).collect();
        Rules { hosts }.check(Asked {
            method,
            uri: &Uri::from_static("/feed"),
            version: Version::HTTP_11,
            headers: &map,
            peer: peer.map(|peer| peer.parse().unwrap()),
            is_page: false,
        })
    }

    fn local(method: &Method, headers: &[(&str, &str)]) -> Result<(), Foreign> {
        asked(&[], Some("127.0.0.1:9"), method, headers)
    }

    #[test]
    fn only_hosts_of_this_machine_are_answered() {
        for host in ["localhost:3000", "127.0.0.1", "[::1]:80"] {
            assert_eq!(local(&Method::GET, &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "a@localhost",
            "127.0.0.2",
            "",
        ] {
            assert_eq!(
                local(&Method::GET, &[("host", host)]),
                Err(Foreign::Host),
                "{host}"
            );
        }
        assert_eq!(local(&Method::GET, &[]), Err(Foreign::Host));
        assert_eq!(local(&Method::GET, &[HERE, HERE]), Err(Foreign::Host));
    }

    #[test]
    fn only_peers_of_this_machine_are_answered_unless_hosts_are_named() {
        let get = |rules: &[&str], peer, headers: &[_]| asked(rules, peer, &Method::GET, headers);
        for peer in ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
            assert_eq!(get(&[], Some(peer), &[HERE]), Ok(()), "{peer}");
        }
        for peer in ["192.0.2.7:9", "[2001:db8::1]:9", "[::ffff:192.0.2.7]:9"] {
            assert_eq!(get(&[], Some(peer), &[HERE]), Err(Foreign::Peer), "{peer}");
        }
        assert_eq!(get(&[], None, &[HERE]), Err(Foreign::UnknownPeer));
        for name in PROXY
            .into_iter()
            .chain(["x-forwarded-for", "x-forwarded-new"])
        {
            let forwarded = [HERE, (name, "192.0.2.7")];
            assert_eq!(
                get(&[], Some("127.0.0.1:9"), &forwarded),
                Err(Foreign::Peer),
                "{name}"
            );
        }
        let rules = ["ops.example", "other.example:8443"];
        for host in [
            "ops.example",
            "OPS.example:8443",
            "other.example:8443",
            "localhost",
        ] {
            let asked = get(&rules, Some("192.0.2.7:9"), &[("host", host)]);
            assert_eq!(asked, Ok(()), "{host}");
        }
        for host in [
            "other.example",
            "other.example:80",
            "evil.example",
            "a@ops.example",
        ] {
            let asked = get(&rules, Some("192.0.2.7:9"), &[("host", host)]);
            assert_eq!(asked, Err(Foreign::Host), "{host}");
        }
    }

    #[test]
    fn only_our_origin_acts() {
        let post = |headers: &[_]| local(&Method::POST, headers);
        let same = ("sec-fetch-site", "same-origin");
        assert_eq!(post(&[HERE, OURS, OWN]), Ok(()));
        assert_eq!(post(&[HERE, same, OWN]), Ok(()));
        assert_eq!(post(&[HERE, OURS]), Err(Foreign::Plain));
        assert_eq!(post(&[HERE, OURS, (OWN_HEADER, "0")]), Err(Foreign::Plain));
        assert_eq!(post(&[HERE, OWN]), Err(Foreign::Origin));
        assert_eq!(post(&[HERE, OURS, OURS, OWN]), Err(Foreign::Origin));
        let foreign = [
            "null",
            "http://evil.example",
            "http://localhost:3001",
            "localhost:3000",
        ];
        for origin in foreign {
            // One header that fits does not excuse another one.
            let asked = post(&[HERE, ("origin", origin), same, OWN]);
            assert_eq!(asked, Err(Foreign::Origin), "{origin}");
        }
        for site in ["cross-site", "same-site", "none", "new"] {
            let asked = post(&[HERE, OURS, ("sec-fetch-site", site), OWN]);
            assert_eq!(asked, Err(Foreign::Origin), "{site}");
        }
    }

    #[test]
    fn foreign_pages_do_not_read() {
        let get = |headers: &[_]| local(&Method::GET, headers);
        assert_eq!(get(&[HERE, ("sec-fetch-site", "none")]), Ok(()));
        for site in ["cross-site", "same-site"] {
            assert_eq!(get(&[HERE, ("sec-fetch-site", site)]), Err(Foreign::Origin));
        }
        assert_eq!(
            get(&[HERE, ("origin", "http://evil.example")]),
            Err(Foreign::Origin)
        );
    }
}
