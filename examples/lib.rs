//! What the examples share: where their logs go, what they print and draw, and processes that run
//! the same program.

pub mod say;
pub mod svg;

#[cfg(unix)]
mod again;
#[cfg(unix)]
pub use again::{Again, Said};

#[cfg(unix)]
mod stop;
#[cfg(unix)]
pub use stop::stop_signal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::fmt::format::FmtSpan;

/// Logs to stderr what `RUST_LOG` asks for, and of targets that it does not name what `default` says:
/// `"warn"`, or `"off"` where the example itself prints what goes wrong.
///
/// With `RUST_LOG=keylane=info` there is a line for each attempt when it ends: its key (as a hash), how
/// long its message waited before it, and for how long its handler computed (`time.busy`) and waited
/// (`time.idle`).
///
/// # Panics
///
/// If `default` is no directive, or if it is called twice.
pub fn log_to_stderr(default: &str) {
    let default: Directive = default.parse().expect("a level, or `off`");
    let filter = EnvFilter::builder()
        .with_default_directive(default)
        .from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(std::io::stderr)
        .init();
}
