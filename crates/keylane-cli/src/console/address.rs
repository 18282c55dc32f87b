//! Where a console is. Pure.

use std::str::FromStr;

use hyper::http::uri::{Authority, Scheme, Uri};

use super::error::ConsoleError;

/// The hosts that a console takes for this machine.
const THIS_MACHINE: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The address of a console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
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
    pub(crate) fn peer(&self) -> String {
        match Authority::try_from(&*self.authority) {
            Ok(authority) if authority.port().is_none() => format!("{}:80", self.authority),
            _ => self.authority.clone(),
        }
    }

    /// The address as an operator writes it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.path)
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
        if uri.scheme() == Some(&Scheme::HTTPS) {
            return Err(ConsoleError::Https);
        }
        if uri.scheme() != Some(&Scheme::HTTP) || authority.as_str().contains('@') {
            return Err(no_address());
        }
        if !THIS_MACHINE.contains(&authority.host()) {
            return Err(ConsoleError::OtherMachine {
                host: authority.host().to_owned(),
            });
        }
        Ok(Self {
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
    fn an_address_has_a_host_of_this_machine_and_a_path() {
        let address: Address = "http://127.0.0.1:3000/ops/console/#lanes/orders"
            .parse()
            .unwrap();
        assert_eq!(address.path_of("about"), "/ops/console/about");
        assert_eq!(address.peer(), "127.0.0.1:3000");
        assert_eq!(address.url(), "http://127.0.0.1:3000/ops/console");
        let plain: Address = "http://[::1]".parse().unwrap();
        assert_eq!(
            (plain.path_of("feed"), plain.peer()),
            ("/feed".to_owned(), "[::1]:80".to_owned())
        );
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
        ] {
            assert!(refused(text).contains("write it as http://"), "{text}");
        }
        assert!(refused("https://localhost/").contains("http://"));
        assert!(refused("http://ops.example/").contains("ssh -L"));
    }

    #[test]
    fn a_value_of_a_query_has_no_character_of_the_query() {
        assert_eq!(encoded("a-b c&d=é"), "a-b%20c%26d%3D%C3%A9");
    }
}
