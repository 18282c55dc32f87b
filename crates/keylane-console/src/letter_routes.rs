//! The routes of dead letters.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Extension, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::acting::done_and_logged;
use crate::action::Action;
use crate::letters::{LetterRow, Page, Unfit, What, Which};
use crate::refusal::Refusal;
use crate::rows::cut;
use crate::state::Shared;
use crate::who::Who;

/// Most letters that are named in one request.
const MOST_IDS: usize = 1_000;

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    name: String,
    /// Behind this one.
    after: Option<String>,
    #[serde(default)]
    filter: String,
}

pub(crate) async fn letters(
    State(state): State<Shared>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Page>, Refusal> {
    let Query(asked) = asked.map_err(|error| Refusal::BadRequest(error.body_text()))?;
    let shelf = state.shelf(&asked.name)?;
    let page = shelf.page(asked.after.as_deref(), &asked.filter).await;
    Ok(Json(page.map_err(refusal)?))
}

#[derive(Debug, Deserialize)]
pub(crate) struct One {
    name: String,
    id: String,
}

pub(crate) async fn letter(
    State(state): State<Shared>,
    one: Result<Query<One>, QueryRejection>,
) -> Result<Json<LetterRow>, Refusal> {
    let Query(one) = one.map_err(|error| Refusal::BadRequest(error.body_text()))?;
    let letter = state.shelf(&one.name)?.letter(&one.id).await;
    let letter = letter.map_err(refusal)?;
    letter.map(Json).ok_or(Refusal::UnknownLetter)
}

#[derive(Debug, Deserialize)]
pub(crate) struct Act {
    name: String,
    action: Action,
    /// These letters, at once.
    ids: Option<Vec<String>>,
    /// All letters that the filter chooses, as a job.
    filter: Option<String>,
}

pub(crate) async fn act_on_letters(
    State(state): State<Shared>,
    Extension(who): Extension<Who>,
    act: Result<Json<Act>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let Json(act) = act.map_err(|error| state.unread("/letters/act", who, &error))?;
    let act = Arc::new(act);
    let logged = Arc::clone(&act);
    let acted = done_and_logged(
        async move {
            if !state.allowed.contains(&act.action) {
                return Err(Refusal::NotAllowed);
            }
            let shelf = state.shelf(&act.name)?;
            let acted = shelf.act(what(act.action)?, which(&act)?, who).await;
            acted.map_err(refusal)
        },
        move |acted| log(who, &logged, acted),
    );
    Ok(Json(json!({ "letters": acted.await? })))
}

/// A user who may act may also stop a job: what is done stays.
pub(crate) async fn stop_job(
    State(state): State<Shared>,
    Extension(who): Extension<Who>,
    one: Result<Json<Stopped>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let Json(one) = one.map_err(|error| state.unread("/letters/stop", who, &error))?;
    let stopped = stop(&state, &one.name);
    tracing::warn!(
        target: "keylane_console",
        // As a literal: it must not make a line of its own.
        letters = ?cut(&one.name),
        session = who.session,
        peer = who.peer(),
        result = stopped.as_ref().map_or_else(Refusal::name, |()| "done"),
        "an operator stops a job over dead letters"
    );
    stopped.map(|()| Json(json!({})))
}

fn stop(state: &Shared, name: &str) -> Result<(), Refusal> {
    let letters = [Action::RedriveLetters, Action::PurgeLetters];
    if !letters.iter().any(|action| state.allowed.contains(action)) {
        return Err(Refusal::NotAllowed);
    }
    match state.shelf(name)?.stop() {
        true => Ok(()),
        false => Err(Refusal::NoJob),
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Stopped {
    name: String,
}

fn what(action: Action) -> Result<What, Refusal> {
    match action {
        Action::RedriveLetters => Ok(What::Redrive),
        Action::PurgeLetters => Ok(What::Purge),
        _ => Err(Refusal::BadRequest("post this action to `act`".to_owned())),
    }
}

/// Exactly one of the two: a request that names neither must not mean all letters.
fn which(act: &Act) -> Result<Which, Refusal> {
    match (&act.ids, &act.filter) {
        (Some(ids), None) if ids.len() <= MOST_IDS => Ok(Which::Ids(ids.clone())),
        (None, Some(filter)) => Ok(Which::Filter(filter.clone())),
        _ => Err(Refusal::BadRequest(format!(
            "name up to {MOST_IDS} `ids`, or a `filter`, and not both"
        ))),
    }
}

fn refusal(unfit: Unfit) -> Refusal {
    match unfit {
        Unfit::Busy => Refusal::JobRuns,
        Unfit::NoId(why) => Refusal::BadRequest(why),
        Unfit::Failed(why) => Refusal::StoreFailed(why),
    }
}

/// Every action is in the log, with who and what, whether or not it was done.
fn log(who: Who, act: &Act, acted: Result<&Option<u64>, &Refusal>) {
    let ids = act.ids.as_deref().unwrap_or_default();
    tracing::warn!(
        target: "keylane_console",
        action = ?act.action,
        // As literals: they must not make a line of their own.
        letters = ?cut(&act.name),
        ids = ?cut(&ids.join(" ")),
        filter = ?act.filter.as_deref().map(cut),
        session = who.session,
        peer = who.peer(),
        result = match acted {
            Ok(Some(_)) => "done",
            Ok(None) => "begun",
            Err(refusal) => refusal.name(),
        },
        count = acted.ok().copied().flatten(),
        // From a store, or from what an operator has written: as a literal, too.
        why = acted.err().and_then(Refusal::why).map(cut).map(tracing::field::debug),
        "an operator acts on dead letters"
    );
}
