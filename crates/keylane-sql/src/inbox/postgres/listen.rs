//! Hearing of accepted messages.
//!
//! What is heard is a hint: the source polls as well.
//!
//! A connection on which nothing is said looks the same as one whose other end is gone without a
//! word. So it is asked for a sign of life now and then, and given up if there is none.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Acquire, Connection, PgPool};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// How long to wait before the next attempt to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a sign of life is asked for.
const ASK: Duration = Duration::from_secs(5);

/// How long the server may take to connect, and for a sign of life.
const ANSWER: Duration = Duration::from_secs(5);

pub(super) fn listen(pool: PgPool, channel: String, wake: Arc<Notify>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            if let Ok(Ok(listener)) = timeout(ANSWER, connect(&pool, &channel)).await {
                hear(listener, &wake).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// On a connection of its own: one that is given up says good-bye to a server that does not answer,
/// and would keep its place in the pool for as long as that takes.
async fn connect(pool: &PgPool, channel: &str) -> Result<PgListener, sqlx::Error> {
    let options = PgPoolOptions::new().max_connections(1);
    let own = options.connect_with((*pool.connect_options()).clone());
    let mut listener = PgListener::connect_with(&own.await?).await?;
    listener.listen(channel).await?;
    Ok(listener)
}

/// Until the connection is lost, or there is no sign of life.
async fn hear(mut listener: PgListener, wake: &Notify) {
    // What was told before is not heard.
    wake.notify_one();
    let mut ask_at = Instant::now() + ASK;
    loop {
        match timeout_at(ask_at, listener.try_recv()).await {
            Ok(Ok(Some(_))) => wake.notify_one(),
            // `Ok(None)`: the connection was lost, and with it what was told meanwhile.
            Ok(_) => return,
            Err(_) => {
                let alive = async { listener.acquire().await?.ping().await };
                let Ok(Ok(())) = timeout(ANSWER, alive).await else {
                    return;
                };
                ask_at = Instant::now() + ASK;
            }
        }
    }
}
