//! Redrives and purges letters through a console.

use serde_json::json;

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
    let (mut done, mut missing) = (0, None);
    let mut acted = Ok(());
    for ids in ids.chunks(step) {
        match shelf.act(what.action, ids).await {
            Ok(count) => {
                done += count;
                if count < ids.len() as u64 {
                    missing = missing.or(ids.first());
                }
            }
            Err(error) => {
                acted = Err(error);
                break;
            }
        }
    }
    // What is done stays done.
    if acted.is_ok() || done > 0 {
        let count = ids.len();
        out.done(
            &format!("{done} of {count} {}", what.done),
            json!({ what.done: done, "wanted": count }),
        )?;
    }
    acted?;
    match missing {
        None => Ok(()),
        Some(id) if step == 1 => Err(Failure::Other(format!("{id} is not a dead letter"))),
        Some(_) => Err(Failure::Other(
            "the others were redriven or purged meanwhile: list the letters again".to_owned(),
        )),
    }
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
