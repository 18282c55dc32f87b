//! When a program is asked to stop.

use std::future::pending;

use tokio::signal;

/// Waits for Ctrl-C, or for what a service manager sends. If neither can be heard, it never
/// returns.
///
/// # Panics
///
/// Panics outside a Tokio runtime.
pub async fn stop_signal() {
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
