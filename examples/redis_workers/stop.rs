//! The wish to end.

use std::future::pending;

use tokio::signal;

/// Waits for Ctrl-C, or for what a service manager sends.
pub(crate) async fn stop_signal() {
    let pressed = async {
        if signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
    };
    let terminated = async {
        match signal::unix::signal(signal::unix::SignalKind::terminate()) {
            Ok(mut signals) => _ = signals.recv().await,
            Err(_) => pending().await,
        }
    };
    tokio::select! {
        () = pressed => {}
        () = terminated => {}
    }
}
