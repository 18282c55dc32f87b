//! A cache that is refreshed once for many requests: four ways to treat the ones that wait.
//!
//! ```text
//! cargo run --example coalesce
//! RUST_LOG=keylane=info cargo run --example coalesce   # with a line for each attempt, on stderr
//! ```
//!
//! A page takes 100 ms to render. It is edited four times within 60 ms, so while the first edit is
//! rendered three more come in. Each way renders the page twice, and not four times. Look at *which*
//! edit the second render is for, and at what the senders of the others are told.

use std::convert::Infallible;
use std::time::Duration;

use keylane::discipline::Coalesce;
use keylane::{Dispatcher, Receipt};
use tokio::time::{Instant, sleep};

type Error = Box<dyn std::error::Error>;

/// A request to bring a page in the cache up to date.
#[derive(Debug)]
struct Refresh {
    page: &'static str,
    edits: Vec<u32>,
}

/// What the handler answers.
type Html = String;

#[tokio::main]
async fn main() -> Result<(), Error> {
    examples::log_to_stderr("warn");
    println!("1. keep_first: who waits already stands for the newcomers");
    edit_four_times(Coalesce::keep_first(), false).await?;

    println!("2. keep_latest: the newcomer takes the place of the one that waits");
    edit_four_times(Coalesce::keep_latest(), false).await?;

    println!(
        "3. merge: the two become one; a merged edit is settled with the render it is part of"
    );
    edit_four_times(Coalesce::merge(both), false).await?;

    println!("4. keep_latest and share_answers: all of them get the page, rendered twice");
    edit_four_times(Coalesce::keep_latest(), true).await
}

/// One request in the place of two.
fn both(waiting: &Refresh, new: &Refresh) -> Refresh {
    Refresh {
        page: new.page,
        edits: [&waiting.edits[..], &new.edits[..]].concat(),
    }
}

async fn edit_four_times(how: Coalesce<Refresh>, share: bool) -> Result<(), Error> {
    let started = Instant::now();
    let mut cache = Dispatcher::builder(|refresh: &Refresh| refresh.page).coalesce(how);
    if share {
        cache = cache.share_answers::<Html>();
    }
    let cache = cache.spawn(move |refresh: Refresh| render(started, refresh))?;

    let mut senders = Vec::new();
    for edit in 1..=4 {
        let page = "home";
        let edits = vec![edit];
        let receipt = cache.submit(Refresh { page, edits }).await?;
        senders.push(tokio::spawn(wait(edit, started, receipt)));
        sleep(Duration::from_millis(20)).await;
    }
    // Another page is another key: it is rendered at the same time.
    let about = Refresh {
        page: "about",
        edits: vec![1],
    };
    cache.send(about).await?;

    let mut told = Vec::new();
    for sender in senders {
        told.push(sender.await?);
    }
    let report = cache.drain().await;
    for line in told {
        println!("          {line}");
    }
    println!("   {report}\n");
    Ok(())
}

async fn render(started: Instant, refresh: Refresh) -> Result<Html, Infallible> {
    let Refresh { page, edits } = refresh;
    let from = started.elapsed().as_millis();
    sleep(Duration::from_millis(100)).await;
    let to = started.elapsed().as_millis();
    println!("   {from:>3} to {to:>3} ms  {page} is rendered for edits {edits:?}");
    Ok(format!("{page} with edits {edits:?}"))
}

/// What a sender is told, and when.
async fn wait(edit: u32, started: Instant, receipt: Receipt<Refresh, Html, Infallible>) -> String {
    let told = match receipt.await {
        Ok(html) => format!("\"{html}\""),
        Err(why) => why.to_string(),
    };
    let ms = started.elapsed().as_millis();
    format!("edit {edit} is told after {ms:>3} ms: {told}")
}
