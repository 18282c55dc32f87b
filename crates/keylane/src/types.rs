//! The four types of a dispatcher under one name, so that their bounds are written once.

use std::fmt;
use std::marker::PhantomData;

/// What a dispatcher is made of: the key, the message, the handler's answer and its error.
pub(crate) trait Types {
    type Key;
    type Message;
    type Output;
    type Error;
}

/// [`Types`] with the bounds under which a dispatcher runs.
///
/// Separate from `Types`, so that the public handles can name their engine without bounds on their
/// structs.
pub(crate) trait Spec:
    Types<
        Key: Eq + Clone + Send + Sync + 'static,
        Message: Send + Sync + 'static,
        Output: Send + 'static,
        Error: fmt::Debug + Send + Sync + 'static,
    > + 'static
{
}

impl<T> Spec for T where
    T: Types<
            Key: Eq + Clone + Send + Sync + 'static,
            Message: Send + Sync + 'static,
            Output: Send + 'static,
            Error: fmt::Debug + Send + Sync + 'static,
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
