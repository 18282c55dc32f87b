//! The four types of a dispatcher under one name, so that their bounds are written once.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

/// What a dispatcher is made of: the key, the message, the handler's answer and its error.
pub(crate) trait Types {
    type Key;
    type Message;
    type Output;
    type Error;
}

/// What a key is.
pub(crate) trait Key: Hash + Eq + Clone + Send + Sync + 'static {}
impl<K: Hash + Eq + Clone + Send + Sync + 'static> Key for K {}

/// What a message is.
pub(crate) trait Message: Send + Sync + 'static {}
impl<M: Send + Sync + 'static> Message for M {}

/// What the answer of a handler is.
pub(crate) trait Output: Send + 'static {}
impl<O: Send + 'static> Output for O {}

/// What the error of a handler is.
pub(crate) trait Error: fmt::Debug + Send + Sync + 'static {}
impl<E: fmt::Debug + Send + Sync + 'static> Error for E {}

/// [`Types`] with the bounds under which a dispatcher runs.
///
/// Separate from `Types`, so that the public handles can name their engine without bounds on their
/// structs.
pub(crate) trait Spec:
    Types<Key: Eq + Clone + Send + Sync + 'static, Message: Message, Output: Output, Error: Error>
    + 'static
{
}

impl<T> Spec for T where
    T: Types<
            Key: Eq + Clone + Send + Sync + 'static,
            Message: Message,
            Output: Output,
            Error: Error,
        > + 'static
{
}

/// The types that a user has named one by one.
pub(crate) struct Of<K, M, O, E>(PhantomData<Four<K, M, O, E>>);

/// A function type, so that `Of` is `Send` and `Sync` whatever the four are.
type Four<K, M, O, E> = fn() -> (K, M, O, E);

impl<K, M, O, E> Types for Of<K, M, O, E> {
    type Key = K;
    type Message = M;
    type Output = O;
    type Error = E;
}
