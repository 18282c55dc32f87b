//! Follows the feeds of a console, over lost connections and restarts.

use std::convert::Infallible;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use super::feed::{Frame, Lane};
use super::state::Update;
use crate::console::{Console, ConsoleError, encoded};

/// The pause before it connects again.
const PAUSE: Duration = Duration::from_secs(2);

/// Follows the overview. It never ends.
pub(super) async fn follow_overview(console: &Console, updates: &Sender<Update>) -> Infallible {
    follow(console, "feed", updates, Update::Overview).await
}

/// Follows the lanes of a dispatcher. It never ends.
pub(super) async fn follow_lanes(
    console: &Console,
    dispatcher: &str,
    updates: &Sender<Update>,
) -> Infallible {
    let path = format!("lanes?dispatcher={}", encoded(dispatcher));
    follow(console, &path, updates, Update::Lanes).await
}

/// Finds the lane of a key.
pub(super) async fn find(console: &Console, dispatcher: String, key: String) -> Update {
    let body = json!({ "dispatcher": dispatcher, "key": key });
    let found: Result<Box<Lane>, ConsoleError> = console.post("find", &body).await;
    Update::Found(key, found.map_err(|error| error.to_string()))
}

async fn follow<B: DeserializeOwned>(
    console: &Console,
    path: &str,
    updates: &Sender<Update>,
    update: fn(Frame<B>) -> Update,
) -> Infallible {
    let mut last_id = None;
    loop {
        let why = listen(console, path, updates, update, &mut last_id).await;
        // The receiver lives as long as this future.
        let _ = updates.send(Update::Lost(why.to_string())).await;
        sleep(PAUSE).await;
    }
}

/// Passes on what comes, until the feed ends. Returns why.
async fn listen<B: DeserializeOwned>(
    console: &Console,
    path: &str,
    updates: &Sender<Update>,
    update: fn(Frame<B>) -> Update,
    last_id: &mut Option<String>,
) -> ConsoleError {
    let mut events = match console.events(path, last_id.as_deref()).await {
        Ok(events) => events,
        Err(error) => return error,
    };
    loop {
        let event = match events.next().await {
            Ok(event) => event,
            Err(error) => return error,
        };
        match serde_json::from_str(&event.data) {
            Ok(frame) => {
                *last_id = Some(event.id);
                let _ = updates.send(update(frame)).await;
            }
            Err(error) => {
                return ConsoleError::OtherVersion {
                    why: error.to_string(),
                };
            }
        }
    }
}
