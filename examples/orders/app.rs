//! The routes.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::Redirect;
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use keylane::consume::IntakeWatch;
use keylane::watching::Health;
use keylane_console::Console;
use keylane_inbox::{Inbox, NewMessage};
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::figures::{Figures, Stats};
use crate::guard::guard;
use crate::health;
use crate::ledger::{Ledger, now_us};
use crate::order::Order;
use crate::refusal::Refusal;
use crate::shop::Lanes;

/// Most bytes of a body. An order of the longest user fits, escaped as it may be.
const MOST_BYTES: usize = 16 << 10;

/// Most orders that are being stored at once.
const MOST_AT_ONCE: usize = 4_096;

/// Most orders that wait on the disk, as of a second ago.
const MOST_WAITING: u64 = 1_000_000;

/// Where the console is.
const CONSOLE: &str = "/console";

/// What the routes share.
#[derive(Debug, Clone)]
pub(crate) struct Shop {
    inbox: Inbox,
    lanes: Lanes,
    figures: Figures,
    ledger: Ledger,
    places: Arc<Semaphore>,
    ids: Arc<Ids>,
}

impl Shop {
    pub(crate) fn new(inbox: Inbox, lanes: Lanes, ledger: Ledger, figures: Figures) -> Self {
        Self {
            inbox,
            lanes,
            figures,
            ledger,
            places: Arc::new(Semaphore::new(MOST_AT_ONCE)),
            ids: Arc::default(),
        }
    }
}

/// The routes of the service, and the console beside them, which has a guard of its own.
pub(crate) fn routes(
    shop: Shop,
    intake: IntakeWatch,
    console: &Console,
    address: SocketAddr,
) -> Router {
    let lanes = shop.lanes.clone();
    let health = move || Health::of([lanes.health(), intake.health()]);
    Router::new()
        .merge(health::routes(health))
        .route("/orders", post(order))
        .route("/", get(async || Redirect::to(CONSOLE)))
        // A nested router is not asked with a slash at its end.
        .route("/console/", get(async || Redirect::to(CONSOLE)))
        .route("/stats", get(stats))
        .with_state(shop)
        .fallback(async || Refusal::NoSuchPage)
        .method_not_allowed_fallback(async || Refusal::NoSuchMethod)
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .layer(middleware::from_fn_with_state(address, guard))
        .nest(CONSOLE, console.router())
}

/// The answer to an order that is stored.
#[derive(Debug, Serialize)]
struct Stored {
    id: String,
    /// Its place in the inbox.
    sequence: u64,
    /// Whether it was stored before, and is stored once.
    duplicate: bool,
}

async fn order(
    State(shop): State<Shop>,
    order: Result<Json<Order>, JsonRejection>,
) -> Result<(StatusCode, Json<Stored>), Refusal> {
    let Json(mut order) = order?;
    order.check().map_err(Refusal::BadOrder)?;
    let _place = shop.places.try_acquire().map_err(|_| Refusal::Busy)?;
    if shop.figures.waiting() >= MOST_WAITING {
        return Err(Refusal::Full);
    }
    if order.id.is_empty() {
        order.id = shop.ids.next();
    }

    let message = NewMessage::new(order.user.clone(), order.to_payload()).id(order.id.clone());
    // If the client hangs up here, the order may be stored: it sends it again with the same id.
    let accepted = shop.inbox.accept_message(message).await?;
    if accepted.is_duplicate() {
        shop.compare(&order, accepted.sequence()).await?;
    } else {
        shop.figures.accepted();
    }
    let stored = Stored {
        id: order.id,
        sequence: accepted.sequence(),
        duplicate: accepted.is_duplicate(),
    };
    Ok((StatusCode::ACCEPTED, Json(stored)))
}

impl Shop {
    /// Whether an order that was absorbed is the one that was stored before under this sequence. It waits,
    /// or is a letter, or is paid; if it has just moved on, it is somewhere else on the second look.
    async fn compare(&self, order: &Order, sequence: u64) -> Result<(), Refusal> {
        for _ in 0..2 {
            let waiting = self.inbox.store().read(&[sequence]).await?.pop().flatten();
            let stored = match waiting {
                Some(stored) => Some(stored),
                None => self
                    .inbox
                    .letters()
                    .show(sequence)
                    .await?
                    .map(|letter| letter.message),
            };
            let is_same = match stored {
                Some(stored) => Order::from_payload(&stored.payload).is_ok_and(|it| it == *order),
                None => match self.ledger.payment(&order.id) {
                    Some(paid) => *paid.user == *order.user && paid.cents == order.cents,
                    None => continue,
                },
            };
            return if is_same {
                Ok(())
            } else {
                Err(Refusal::IdTaken)
            };
        }
        Ok(())
    }
}

async fn stats(State(shop): State<Shop>) -> Result<Json<Stats>, Refusal> {
    Ok(Json(shop.figures.stats(&shop.inbox, &shop.lanes).await?))
}

/// Ids for orders that come without one, used by no other life of the shop.
#[derive(Debug)]
struct Ids {
    life: String,
    last: AtomicU64,
}

impl Default for Ids {
    fn default() -> Self {
        let now = now_us();
        let random = RandomState::new().hash_one(now);
        Self {
            life: format!("{now:x}-{random:016x}"),
            last: AtomicU64::new(0),
        }
    }
}

impl Ids {
    fn next(&self) -> String {
        // Relaxed: it counts, and orders nothing.
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{}-{number}", self.life)
    }
}
