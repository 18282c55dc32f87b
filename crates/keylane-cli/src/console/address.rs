//! Where a console is. Pure.

use std::str::FromStr;

use hyper::http::uri::{Authority, Scheme, Uri};
use keylane_connector::tls::host_and_port;

use super::error::ConsoleError;

/// The hosts that a console takes for this machine.
const THIS_MACHINE: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The address of a console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(super) has_tls: bool,
    /// Host and port, as in the header `host`.
    pub(crate) authority: String,
    /// The path at which it is nested, without the slash at its end.
    path: String,
}

impl Address {
    /// The path of a request.
    pub(crate) fn path_of(&self, path: &str) -> String {
        format!("{}/{path}", self.path)
    }

    /// Host and port, to connect to.
    pub(crate) fn peer(&self) -> (&str, u16) {
        let default = if self.has_tls { 443 } else { 80 };
        // The port was looked at when the address was read.
        host_and_port(&self.authority, Some(default)).unwrap_or((&self.authority, default))
    }

    /// Scheme, host and port, as in the header `origin`.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// The address as an operator writes it.
    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.origin(), self.path)
    }
}

impl FromStr for Address {
    type Err = ConsoleError;

    fn from_str(text: &str) -> Result<Self, ConsoleError> {
        // The page has the place in it behind a `#`.
        let whole = text.split_once(['#', '?']).map_or(text, |(front, _)| front);
        let no_address = || ConsoleError::NoAddress {
            text: text.escape_debug().to_string(),
        };
        let uri: Uri = whole.parse().map_err(|_| no_address())?;
        let authority = uri.authority().ok_or_else(no_address)?;
        let has_tls = uri.scheme() == Some(&Scheme::HTTPS);
        let has_scheme = has_tls || uri.scheme() == Some(&Scheme::HTTP);
        if !has_scheme || authority.as_str().contains('@') {
            return Err(no_address());
        }
        let has_port = |authority: &Authority| {
            let after = authority.as_str().strip_prefix(authority.host());
            after == Some("") || authority.port_u16().is_some()
        };
        if !has_port(authority) {
            return Err(no_address());
        }
        if !has_tls && !THIS_MACHINE.contains(&authority.host()) {
            return Err(ConsoleError::OtherMachine {
                host: authority.host().to_owned(),
            });
        }
        Ok(Self {
            has_tls,
            authority: authority.as_str().to_owned(),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// A value in the query of an address.
pub(crate) fn encoded(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let bytes = value.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_path() {
        let address: Address = "http://127.0.0.1:3000/ops/console/#lanes/orders"
            .parse()
            .unwrap();
        assert_eq!(address.path_of("about"), "/ops/console/about");
        assert_eq!(address.peer(), ("127.0.0.1", 3000));
        assert_eq!(address.url(), "http://127.0.0.1:3000/ops/console");
        let plain: Address = "http://[::1]".parse().unwrap();
        assert_eq!(
            (plain.path_of("feed"), plain.peer()),
            ("/feed".to_owned(), ("::1", 80))
        );
        let proxied: Address = "https://ops.example/console".parse().unwrap();
        assert_eq!(proxied.peer(), ("ops.example", 443));
        assert_eq!(proxied.origin(), "https://ops.example");
        assert_eq!(proxied.url(), "https://ops.example/console");
    }

    #[test]
    fn other_addresses_say_what_to_write() {
        let refused = |text: &str| text.parse::<Address>().unwrap_err().to_string();
        for text in [
            "",
            "orders",
            "127.0.0.1:3000",
            "ftp://localhost/",
            "http://a:b@localhost/",
            "https://a:b@ops.example/",
            "http://localhost:99999/",
        ] {
            assert!(refused(text).contains("write it as http://"), "{text}");
        }
        let other = refused("http://ops.example/");
        assert!(
            other.contains("https://") && other.contains("ssh -L"),
            "{other}"
        );
    }

    #[test]
    fn a_value_of_a_query_has_no_character_of_the_query() {
        assert_eq!(encoded("a-b c&d=é"), "a-b%20c%26d%3D%C3%A9");
    }
}
