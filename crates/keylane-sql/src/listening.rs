//! Listens for notifications of PostgreSQL.
//!
//! A notification is only a hint: those who wait for it also look by themselves.
//!
//! A silent connection looks the same as one whose other end has vanished. So the listener asks for
//! a sign of life now and then, and gives the connection up if there is none.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Acquire, Connection, PgPool};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// How long to wait before the next attempt to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// How often the listener asks for a sign of life.
const ASK: Duration = Duration::from_secs(5);

/// How long the server may take to connect, and to give a sign of life.
const ANSWER: Duration = Duration::from_secs(5);

/// What is heard on a channel.
pub(crate) enum Heard<'a> {
    /// From now on everything is heard. Nothing was heard before.
    All,
    /// A notification with this payload.
    Said(&'a str),
    /// The connection is lost: nothing is heard until there is another one.
    Nothing,
}

/// Listens on a channel until the task is aborted.
pub(crate) fn listen(
    pool: PgPool,
    channel: String,
    tell: impl Fn(Heard<'_>) + Send + Sync + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            if let Ok(Ok(listener)) = timeout(ANSWER, connect(&pool, &channel)).await {
                hear(listener, &tell).await;
                tell(Heard::Nothing);
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// Connects outside the pool: a connection that is given up says good-bye to a server that does not
/// answer, and would keep its place in the pool for that long.
async fn connect(pool: &PgPool, channel: &str) -> Result<PgListener, sqlx::Error> {
    let options = PgPoolOptions::new().max_connections(1);
    let own = options.connect_with((*pool.connect_options()).clone());
    let mut listener = PgListener::connect_with(&own.await?).await?;
    listener.listen(channel).await?;
    Ok(listener)
}

/// Listens until the connection is lost, or gives no sign of life.
async fn hear(mut listener: PgListener, tell: &(impl Fn(Heard<'_>) + Sync)) {
    // Earlier notifications are not received.
    tell(Heard::All);
    let mut ask_at = Instant::now() + ASK;
    loop {
        match timeout_at(ask_at, listener.try_recv()).await {
            Ok(Ok(Some(said))) => tell(Heard::Said(said.payload())),
            // `Ok(None)`: the connection was lost, and with it the notifications sent meanwhile.
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
