//! Keys as text: what an operator reads, and what is searched for.

use std::sync::Arc;

use keylane::Bytes;

/// A key that the console can show, and find by its text.
///
/// It is there for text, integers and bytes. Implement it for your own type, or name two functions
/// with [`View::new`](crate::View::new) for a type of another crate.
///
/// # Examples
///
/// ```
/// use keylane_console::ConsoleKey;
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct Account(u32);
///
/// impl ConsoleKey for Account {
///     fn to_text(&self) -> String {
///         format!("account-{}", self.0)
///     }
///     fn from_text(text: &str) -> Option<Self> {
///         Some(Self(text.strip_prefix("account-")?.parse().ok()?))
///     }
/// }
/// ```
pub trait ConsoleKey: Sized {
    /// Returns the text that an operator reads. Two keys must not have the same text.
    fn to_text(&self) -> String;

    /// Returns the key of a text; `None` if there is no such key.
    fn from_text(text: &str) -> Option<Self>;
}

macro_rules! parsed {
    ($($key:ty),*) => {$(
        impl ConsoleKey for $key {
            fn to_text(&self) -> String {
                self.to_string()
            }
            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

parsed!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, char, bool, String
);

impl ConsoleKey for Arc<str> {
    fn to_text(&self) -> String {
        self.as_ref().to_owned()
    }
    fn from_text(text: &str) -> Option<Self> {
        Some(text.into())
    }
}

/// UTF-8 as it is, other bytes as `\xff`, and a backslash as `\\`.
impl ConsoleKey for Vec<u8> {
    fn to_text(&self) -> String {
        escaped(self)
    }
    fn from_text(text: &str) -> Option<Self> {
        unescaped(text)
    }
}

/// UTF-8 as it is, other bytes as `\xff`, and a backslash as `\\`.
impl ConsoleKey for Bytes {
    fn to_text(&self) -> String {
        escaped(self)
    }
    fn from_text(text: &str) -> Option<Self> {
        unescaped(text).map(Self::from)
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        rest = match escape.strip_prefix('\\') {
            Some(rest) => {
                bytes.push(b'\\');
                rest
            }
            None => {
                let digits = escape.strip_prefix('x')?;
                let (byte, rest) = (digits.get(..2)?, digits.get(2..)?);
                bytes.push(u8::from_str_radix(byte, 16).ok()?);
                rest
            }
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_from_their_text() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [
            &b""[..],
            b"ann",
            b"\\xff",
            b"\\",
            b"\xff\xfe\\",
            "שלום".as_bytes(),
            &all,
        ] {
            let text = bytes.to_vec().to_text();
            assert_eq!(Vec::from_text(&text).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(b"a\xff\\".to_vec().to_text(), "a\\xff\\\\");
    }

    #[test]
    fn a_text_that_is_no_key_is_none() {
        for text in ["\\", "\\x", "\\xf", "\\xzz", "\\é"] {
            assert_eq!(Vec::<u8>::from_text(text), None, "{text}");
        }
        assert_eq!(u8::from_text("256"), None);
    }
}
