//! What `RUST_LOG` shows of a dispatcher: the lines that an operator reads.

use std::time::Duration;

use keylane::{Dispatcher, Retry};
use keylane_testkit::Lines;
use keylane_testkit::scenario::paused;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// The lines of one message that fails once, with this filter.
fn lines_with(filter: &str) -> Vec<String> {
    let lines = Lines::new();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_span_events(FmtSpan::CLOSE)
        .without_time()
        .with_writer(lines.writer())
        .finish();
    let _on = keylane_testkit::set_subscriber(subscriber);
    paused().block_on(async {
        let orders = Dispatcher::builder(|order: &u32| *order)
            .trace_keys()
            .retry(Retry::fixed(Duration::from_secs(1)).max_attempts(2))
            .spawn(|ctx: keylane::Context<u32>, _: u32| async move {
                if ctx.attempt() == 1 {
                    Err("no")
                } else {
                    Ok(())
                }
            })
            .unwrap();
        orders.send(7).await.unwrap();
        orders.drain().await;
    });
    lines.all()
}

#[test]
fn a_filter_chooses_what_is_logged() {
    assert!(lines_with("keylane=off").is_empty());
    assert!(lines_with("somewhere_else=trace").is_empty());

    let warnings = lines_with("keylane=warn");
    let failed = "WARN keylane: an attempt failed key=7 attempt=1 error=the handler failed: \"no\"";
    let lines: Vec<&str> = warnings.iter().map(|line| line.trim()).collect();
    assert_eq!(lines, [failed]);
}

#[test]
fn at_info_each_attempt_is_a_line() {
    let lines = lines_with("keylane=info");
    let attempts: Vec<&str> = lines
        .iter()
        .filter(|line| line.contains("keylane.message{"))
        .map(|line| line.trim())
        .collect();
    assert_eq!(attempts.len(), 2, "{lines:?}");
    for (line, attempt) in attempts.iter().zip(1..) {
        let span = format!("INFO keylane.message{{key=7 attempt={attempt} wait_us=");
        assert!(
            line.starts_with(&span) && line.ends_with("}: keylane: close"),
            "{line}"
        );
    }
    assert_eq!(lines.len(), 3, "{lines:?}");
}
