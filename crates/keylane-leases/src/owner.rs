//! Who has leases.

use std::fmt;
use std::sync::LazyLock;

/// The most bytes of a name: with the random part an owner has 64.
const LONGEST_NAME: usize = 47;

/// The process, as people recognise it: the name of its host, and its id. The id is whole: a long
/// name of a host is cut.
static PROCESS: LazyLock<String> = LazyLock::new(|| process(&host_name(), std::process::id()));

/// The owner of leases: one [`Leases`](crate::Leases), for its whole life.
///
/// A name that people recognise, a hyphen, and 64 random bits, as in
/// `orders-5f7c-4021-9a0f3c5577b1e2d4`. At most 64 bytes of visible ASCII, and never used by two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(String);

impl Owner {
    /// Creates a unique owner, named by the host and the id of this process.
    pub fn random() -> Self {
        Self::named(&PROCESS)
    }

    /// Creates a unique owner of this name. Of the name, the first 47 characters are kept. What is
    /// no visible ASCII, and each `/`, becomes `_`.
    pub fn named(name: &str) -> Self {
        Self(format!(
            "{}-{:016x}",
            legal(name, LONGEST_NAME),
            random_bits()
        ))
    }

    /// Returns the owner as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns random bits, seeded by the operating system. Not for secrets.
pub(crate) fn random_bits() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now())
}

fn process(host: &str, id: u32) -> String {
    let id = id.to_string();
    let host = legal(host, LONGEST_NAME - 1 - id.len());
    match host.is_empty() {
        true => id,
        false => format!("{host}-{id}"),
    }
}

/// Stores separate what they keep by spaces and slashes.
fn legal(name: &str, most: usize) -> String {
    let legal = |it: char| match it.is_ascii_graphic() && it != '/' {
        true => it,
        false => '_',
    };
    name.chars().take(most).map(legal).collect()
}

#[cfg(unix)]
fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_named_by_its_process_and_is_unique() {
        let owner = Owner::random();
        assert!(owner.as_str().starts_with(&format!("{}-", *PROCESS)));
        let id = std::process::id().to_string();
        assert!(PROCESS.ends_with(&id), "{}", *PROCESS);
        assert_ne!(owner, Owner::random());
    }

    #[test]
    fn a_name_of_any_text_is_short_and_legal() {
        let names = ["", "billing 3/east", "ärger\n\u{0}", &"n".repeat(1_000)];
        let owners = names.map(|name| Owner::named(name).to_string());
        for (owner, begins) in owners
            .iter()
            .zip(["-", "billing_3_east-", "_rger__-", "nnn"])
        {
            assert!(owner.starts_with(begins), "{owner}");
            assert!(owner.len() <= 64, "{owner}");
            let is_legal = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
            assert!(owner.bytes().all(is_legal), "{owner}");
        }
    }

    #[test]
    fn a_long_name_of_a_host_is_cut_and_not_the_process() {
        let name = process(&"h".repeat(255), u32::MAX);
        assert_eq!(name, format!("{}-4294967295", "h".repeat(36)));
        assert_eq!(process("", 7), "7");
    }
}
