//! A dispatcher whose handler follows a script.

use keylane::{Builder, Context, Dispatcher, Receipt};

use super::engine_panics::watch_for_engine_panics;
use super::message::Message;
use crate::events::{Id, Key};
use crate::script::{Script, ScriptError, Scripted};

/// A dispatcher with a [`Script`] as its handler.
pub type ScriptedDispatcher<K = Key, M = Message> = Dispatcher<K, M, Id, ScriptError>;

/// The receipt of such a dispatcher.
pub type ScriptedReceipt<M = Message> = Receipt<M, Id, ScriptError>;

/// Returns the builder of a dispatcher of [`Message`]s, with all settings at their defaults.
///
/// From this call on panics of the engine itself are recorded: see
/// [`assert_no_engine_panics`](super::assert_no_engine_panics).
pub fn dispatcher()
-> Builder<Key, Message, ScriptError, impl Fn(&Message) -> Option<Key> + Send + Sync + 'static> {
    watch_for_engine_panics();
    Dispatcher::key_by_opt(|message: &Message| message.key)
}

/// Returns the script as a handler of [`Message`]s. The history names a message by its own key,
/// even if the dispatcher orders by another key.
pub fn scripted<K: 'static>(
    script: Script,
) -> impl Fn(Context<K>, Message) -> Scripted + Send + Sync + 'static {
    move |context, message| script.run(message.key, message.id, context.attempt())
}
