//! The commands.

use std::collections::HashSet;

use keylane_inbox::InboxStore;
use serde_json::json;

use crate::args::{Command, InboxArgs};
use crate::failure::Failure;
use crate::opened::{Opened, migrate};
use crate::output::Output;
use crate::selection::{PAGE, Selection, waiting_after};
use crate::text::Bytes;

pub(crate) async fn run(args: InboxArgs) -> Result<(), Failure> {
    let mut out = Output::new(&args.form);
    if let Command::Migrate = args.command {
        migrate(&args.place).await?;
        return Ok(out.done("the tables are up to date", json!({ "migrated": true }))?);
    }
    let opened = Opened::open(&args.place).await?;
    let done = command(&opened, args.command, &mut out).await;
    let closed = opened.store().close().await;
    done?;
    Ok(closed?)
}

async fn command(opened: &Opened, command: Command, out: &mut Output) -> Result<(), Failure> {
    let store = opened.store();
    match command {
        Command::List {
            waiting,
            key,
            after,
            limit,
        } => {
            let wanted = |found: &[u8]| key.as_ref().is_none_or(|Bytes(key)| key == found);
            match waiting {
                false => list_letters(store, after, limit, wanted, out).await,
                true => list_waiting(store, after, limit, wanted, out).await,
            }
        }
        Command::Show { sequence } => show(store, sequence, out).await,
        Command::Redrive {
            sequences,
            all,
            key,
        } => {
            let selection = match key {
                Some(key) => Selection::OfKey(key),
                None if all => Selection::All,
                None => Selection::These(sequences),
            };
            redrive(store, selection.find(store).await?, out).await
        }
        Command::Purge {
            sequences,
            all,
            older_than,
        } => {
            let selection = match older_than {
                Some(time) => Selection::OlderThan(time),
                None if all => Selection::All,
                None => Selection::These(sequences),
            };
            purge(store, selection.find(store).await?, out).await
        }
        Command::Stats => Ok(out.stats(&store.stats().await?)?),
        Command::Check => check(opened, store, out).await,
        Command::Compact => compact(opened, out).await,
        Command::Migrate => Ok(()),
    }
}

async fn list_letters(
    store: &dyn InboxStore,
    mut after: u64,
    limit: usize,
    wanted: impl Fn(&[u8]) -> bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut left = limit;
    while left > 0 {
        let page = store.letters(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.message.sequence;
        let page = page.iter().filter(|letter| wanted(&letter.message.key));
        for letter in page.take(left) {
            left -= 1;
            out.letter_row(&letter.into())?;
        }
    }
    Ok(())
}

async fn list_waiting(
    store: &dyn InboxStore,
    mut after: u64,
    limit: usize,
    wanted: impl Fn(&[u8]) -> bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut left = limit;
    while left > 0
        && let Some(page) = waiting_after(store, after).await?
    {
        after = page.last().map_or(after, |message| message.sequence);
        let page = page.iter().filter(|message| wanted(&message.key));
        for message in page.take(left) {
            left -= 1;
            out.message_row(&message.into())?;
        }
    }
    Ok(())
}

async fn show(store: &dyn InboxStore, sequence: u64, out: &mut Output) -> Result<(), Failure> {
    if let Some(letter) = store.letter(sequence).await? {
        return Ok(out.fields_of(&(&letter).into())?);
    }
    match store.read(&[sequence]).await?.pop().flatten() {
        Some(message) => Ok(out.fields_of(&(&message).into())?),
        None => Err(Failure::Other(format!(
            "{sequence} is neither a dead letter nor a waiting message: it is done, purged, or \
             was never accepted"
        ))),
    }
}

async fn redrive(
    store: &dyn InboxStore,
    wanted: Vec<u64>,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut redriven = Vec::new();
    for page in wanted.chunks(PAGE) {
        redriven.extend(store.redrive(page.to_vec()).await?);
    }
    out.done(
        &format!("{} of {} redriven", redriven.len(), wanted.len()),
        json!({ "redriven": redriven, "wanted": wanted.len() }),
    )?;
    all_found(&wanted, &redriven)
}

async fn purge(store: &dyn InboxStore, wanted: Vec<u64>, out: &mut Output) -> Result<(), Failure> {
    let mut purged = Vec::new();
    for page in wanted.chunks(PAGE) {
        purged.extend(store.purge_letters(page.to_vec()).await?);
    }
    out.done(
        &format!("{} of {} purged", purged.len(), wanted.len()),
        json!({ "purged": purged, "wanted": wanted.len() }),
    )?;
    all_found(&wanted, &purged)
}

fn all_found(wanted: &[u64], found: &[u64]) -> Result<(), Failure> {
    let found: HashSet<_> = found.iter().collect();
    match wanted.iter().find(|sequence| !found.contains(sequence)) {
        None => Ok(()),
        Some(missing) => Err(Failure::Other(format!("{missing} is not a dead letter"))),
    }
}

/// Reads every record. The checksums of the pages of a file were verified when it was opened. In a
/// database the pages may show different points in time, so the totals are not compared.
async fn check(opened: &Opened, store: &dyn InboxStore, out: &mut Output) -> Result<(), Failure> {
    let (mut messages, mut letters, mut after) = (0, 0, 0);
    while let Some(page) = waiting_after(store, after).await? {
        messages += page.len() as u64;
        after = page.last().map_or(after, |message| message.sequence);
    }
    after = 0;
    loop {
        let page = store.letters(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.message.sequence;
        letters += page.len() as u64;
    }
    let stats = match opened {
        Opened::Embedded(_) => Some(store.stats().await?),
        Opened::Tables(_) => None,
    };
    if let Some(stats) = stats
        && (stats.waiting, stats.letters) != (messages, letters)
    {
        return Err(Failure::Other(format!(
            "read {messages} messages and {letters} letters, but there should be {} and {}",
            stats.waiting, stats.letters
        )));
    }
    out.done(
        &format!("{messages} messages and {letters} letters read: no damage found"),
        json!({ "messages": messages, "letters": letters, "damaged": 0 }),
    )?;
    Ok(())
}

async fn compact(opened: &Opened, out: &mut Output) -> Result<(), Failure> {
    let Opened::Embedded(store) = opened else {
        let why = "a database server compacts its own files: use its VACUUM or OPTIMIZE TABLE";
        return Err(Failure::Other(why.to_owned()));
    };
    let before = store.stats().await?.file_bytes;
    let after = store.compact().await?;
    out.done(
        &format!("{before} bytes before, {after} after"),
        json!({ "before_bytes": before, "after_bytes": after }),
    )?;
    Ok(())
}
