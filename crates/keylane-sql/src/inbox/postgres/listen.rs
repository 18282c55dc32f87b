//! Hearing of accepted messages.
//!
//! What is heard is a hint: the source polls as well.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How long to wait before the next attempt to connect.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn listen(pool: PgPool, channel: String, wake: Arc<Notify>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            if let Ok(mut listener) = PgListener::connect_with(&pool).await
                && listener.listen(&channel).await.is_ok()
            {
                // What was told before is not heard.
                wake.notify_one();
                // `Ok(None)`: the connection was lost, and with it what was told meanwhile.
                while let Ok(Some(_)) = listener.try_recv().await {
                    wake.notify_one();
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
}
