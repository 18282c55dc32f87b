//! How one dispatcher's keys become text, and text becomes a key or a message.

use std::fmt;

use keylane::error::BoxError;

use crate::key::ConsoleKey;

/// How the console shows the keys of a dispatcher, and reads what an operator types.
///
/// # Examples
///
/// Keys without [`ConsoleKey`], and messages that an operator may replace:
///
/// ```
/// use keylane::Dispatcher;
/// use keylane_console::{Action, Console, View};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Dispatcher::builder(|(user, _cents): &([u8; 2], u64)| *user)
///     .spawn(|_order: ([u8; 2], u64)| async { Ok::<(), std::io::Error>(()) })?;
/// let show = |key: &[u8; 2]| format!("{}-{}", key[0], key[1]);
/// let parse = |text: &str| {
///     let (first, second) = text.split_once('-')?;
///     Some([first.parse().ok()?, second.parse().ok()?])
/// };
/// let view = View::new(show, parse)
///     .decode(|text| serde_json::from_str::<([u8; 2], u64)>(text));
/// let console = Console::builder()
///     .dispatcher_with("orders", &orders, view)
///     .allow([Action::Replace])
///     .token(std::env::var("CONSOLE_TOKEN").unwrap_or("0123456789abcdef".into()))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "`Builder::dispatcher_with` takes it"]
pub struct View<K, M> {
    pub(crate) show: Box<Show<K>>,
    pub(crate) parse: Box<Parse<K>>,
    pub(crate) decode: Option<Box<Decode<M>>>,
}

type Show<K> = dyn Fn(&K) -> String + Send + Sync;
type Parse<K> = dyn Fn(&str) -> Option<K> + Send + Sync;
type Decode<M> = dyn Fn(&str) -> Result<M, BoxError> + Send + Sync;

impl<K, M> View<K, M> {
    /// Shows keys by `show`, and finds them by `parse`, which returns the key of a text, or `None`
    /// if there is none.
    pub fn new(
        show: impl Fn(&K) -> String + Send + Sync + 'static,
        parse: impl Fn(&str) -> Option<K> + Send + Sync + 'static,
    ) -> Self {
        Self {
            show: Box::new(show),
            parse: Box::new(parse),
            decode: None,
        }
    }

    /// Shows keys by their [`ConsoleKey`].
    pub fn of_keys() -> Self
    where
        K: ConsoleKey + 'static,
    {
        Self::new(K::to_text, K::from_text)
    }

    /// Makes a message of what an operator types, for [`Action::Replace`](crate::Action::Replace).
    /// It must have the key of the message that it replaces. The text of an error is shown.
    pub fn decode<E: Into<BoxError>>(
        mut self,
        decode: impl Fn(&str) -> Result<M, E> + Send + Sync + 'static,
    ) -> Self {
        self.decode = Some(Box::new(move |text| decode(text).map_err(Into::into)));
        self
    }
}

impl<K, M> fmt::Debug for View<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("decodes", &self.decode.is_some())
            .finish_non_exhaustive()
    }
}
