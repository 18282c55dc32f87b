//! What `RUST_LOG` shows of a dispatcher: the lines that an operator reads.

use std::time::Duration;

use keylane::discipline::Coalesce;
use keylane::error::ReceiptError;
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

/// How many lines say that a handler waits for itself.
fn deadlocks(lines: &Lines) -> usize {
    let itself = "a handler awaits the receipt of a message of its own key";
    let lines = lines.all();
    lines.iter().filter(|line| line.contains(itself)).count()
}

fn warnings(lines: &Lines) -> impl tracing::Subscriber + Send + Sync {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(lines.writer())
        .finish()
}

#[test]
fn a_handler_that_waits_for_itself_is_reported_once() {
    let lines = Lines::new();
    let _on = keylane_testkit::set_subscriber(warnings(&lines));
    paused().block_on(async {
        let (handle, mut known) =
            tokio::sync::watch::channel(None::<Dispatcher<u32, u32, (), String>>);
        known.mark_unchanged();
        // The receipt of key 7 is awaited by the handlers of the keys 7 and 8.
        let orders = Dispatcher::builder(|order: &u32| *order % 10)
            .attempt_timeout(Duration::from_secs(1))
            .spawn(move |order: u32| {
                let known = known.clone();
                async move {
                    let orders = known.borrow().clone();
                    match orders.filter(|_| order < 10) {
                        Some(orders) => {
                            let receipt =
                                orders.submit(17).await.map_err(|error| error.to_string())?;
                            receipt.await.map_err(|error| error.to_string())
                        }
                        None => Ok(()),
                    }
                }
            })
            .unwrap();
        handle.send_replace(Some(orders.clone()));
        orders.submit(8).await.unwrap().await.unwrap();
        assert_eq!(deadlocks(&lines), 0);
        for _ in 0..2 {
            // It ends by its time-out.
            orders.submit(7).await.unwrap().await.unwrap_err();
            assert_eq!(deadlocks(&lines), 1);
        }
        handle.send_replace(None);
        orders.drain().await;
    });
}

#[test]
fn a_message_that_is_declined_at_once_is_no_deadlock() {
    let lines = Lines::new();
    let _on = keylane_testkit::set_subscriber(warnings(&lines));
    paused().block_on(async {
        let (handle, known) = tokio::sync::watch::channel(None::<Dispatcher<u32, u32, (), String>>);
        let orders = Dispatcher::builder(|order: &u32| *order % 10)
            .coalesce(Coalesce::keep_first())
            .spawn(move |order: u32| {
                let known = known.clone();
                async move {
                    let orders = known.borrow().clone();
                    if let Some(orders) = orders.filter(|_| order < 10) {
                        orders.send(17).await.unwrap();
                        let declined = orders.submit(27).await.unwrap().await;
                        assert!(matches!(declined, Err(ReceiptError::Declined(_))));
                    }
                    Ok(())
                }
            })
            .unwrap();
        handle.send_replace(Some(orders.clone()));
        orders.submit(7).await.unwrap().await.unwrap();
        assert_eq!(deadlocks(&lines), 0);
        handle.send_replace(None);
        orders.drain().await;
    });
}
