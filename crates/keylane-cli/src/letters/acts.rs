//! Redrives and purges letters through a console.

use std::slice::Chunks;

use serde_json::json;

use super::interrupt::{Interrupt, Step};
use super::shelf::{Shelf, Wanted};
use crate::failure::Failure;
use crate::output::Output;

/// Letters of one request.
const STEP: usize = 200;

/// An action, and what it has done.
#[derive(Clone, Copy)]
pub(super) struct What {
    action: &'static str,
    done: &'static str,
}

pub(super) const REDRIVE: What = What {
    action: "redrive_letters",
    done: "redriven",
};

pub(super) const PURGE: What = What {
    action: "purge_letters",
    done: "purged",
};

pub(super) async fn act(
    shelf: &Shelf<'_>,
    what: What,
    wanted: Wanted,
    out: &mut Output,
) -> Result<(), Failure> {
    let (ids, step) = match wanted {
        // One by one: the answer is a number, and a wrong id is to be named.
        Wanted::These(ids) => (ids, 1),
        wanted => (find(shelf, &wanted).await?, STEP),
    };
    let mut done = Done::default();
    let acted = act_in_steps(shelf, what, ids.chunks(step), &mut done).await;
    // What is done stays done.
    if acted.is_ok() || done.count > 0 {
        let (done, count) = (done.count, ids.len());
        out.done(
            &format!("{done} of {count} {}", what.done),
            json!({ what.done: done, "wanted": count }),
        )?;
    }
    acted?;
    match done.missing {
        None => Ok(()),
        Some(id) if step == 1 => Err(Failure::Other(format!("{id} is not a dead letter"))),
        Some(_) => Err(Failure::Other(
            "the others were redriven or purged meanwhile: list the letters again".to_owned(),
        )),
    }
}

/// What the steps have done.
#[derive(Default)]
struct Done<'a> {
    count: u64,
    /// The first letter of a step of which some were none.
    missing: Option<&'a String>,
}

/// Ctrl-C stops between two steps.
async fn act_in_steps<'a>(
    shelf: &Shelf<'_>,
    what: What,
    steps: Chunks<'a, String>,
    done: &mut Done<'a>,
) -> Result<(), Failure> {
    let mut interrupt = Interrupt::new();
    let stopped = |why: &str| Failure::Other(format!("stopped by Ctrl-C: {why}"));
    for ids in steps {
        if interrupt.is_heard() {
            return Err(stopped("what is done stays done"));
        }
        let Step::Done(acted) = interrupt.finish(shelf.act(what.action, ids)).await else {
            return Err(stopped("the last step may be done, list the letters again"));
        };
        let count = acted?;
        done.count += count;
        if count < ids.len() as u64 {
            done.missing = done.missing.or(ids.first());
        }
    }
    Ok(())
}

/// The ids of all letters that are wanted.
async fn find(shelf: &Shelf<'_>, wanted: &Wanted) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let mut pages = shelf.pages(wanted.filter(), None);
    while let Some(page) = pages.next().await.map_err(Failure::from)? {
        let page = page.into_iter().filter(|letter| wanted.has(letter));
        found.extend(page.map(|letter| letter.id));
    }
    match wanted {
        // The key may be misspelt.
        Wanted::OfKey(_) if found.is_empty() => Err(Failure::Other(
            "there are no dead letters with this key".to_owned(),
        )),
        _ => Ok(found),
    }
}
