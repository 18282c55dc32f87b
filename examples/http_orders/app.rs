//! The routes, and the layers in front of them.

use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::{get, post};
use axum::{BoxError, Json, Router};

use keylane_tower::{KeyedLayer, KeyedSemaphore, SettingError};
use tower::ServiceBuilder;

use crate::figures::Figures;
use crate::refusal::Refusal;
use crate::shop::{Handled, Order, Shop};

/// The lanes of the users.
pub(crate) type Lanes = KeyedSemaphore<HeaderValue>;

/// Most orders of one user at once: one that is handled, the others wait.
pub(crate) const LANE_CAPACITY: usize = 8;

/// How long an order may take from its arrival to its answer, the waiting included.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it may take once its turn has come.
const TURN: Duration = Duration::from_secs(5);

pub(crate) fn lanes() -> Result<Lanes, SettingError> {
    KeyedSemaphore::builder()
        .capacity(256)
        .concurrency(64)
        .lane_capacity(LANE_CAPACITY)
        .build()
}

pub(crate) fn app(shop: Shop, lanes: Lanes, figures: Figures) -> Router {
    let by_user = KeyedLayer::with_semaphore(lanes.clone(), |request: &Request| {
        request.headers().get("x-user").cloned()
    });
    // The first is the outermost. A slow upload is part of the turn: it holds up its own user, for `TURN`.
    let in_order = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(refuse))
        .load_shed()
        .timeout(PATIENCE)
        .layer(by_user)
        .timeout(TURN);

    // Only orders stand in lanes: who looks at them does not wait behind them.
    Router::new()
        .route("/orders", post(order).layer(in_order))
        .route("/orders/{user}", get(orders))
        .with_state(shop)
        .route("/metrics", get(async move || figures.render(&lanes)))
        .fallback(async || Refusal::NoSuchPage)
}

async fn refuse(error: BoxError) -> Refusal {
    let refusal = Refusal::from(error);
    metrics::counter!("orders_refused_total", "reason" => refusal.name()).increment(1);
    refusal
}

async fn order(
    State(shop): State<Shop>,
    headers: HeaderMap,
    order: Result<Json<Order>, JsonRejection>,
) -> Result<(StatusCode, Json<Handled>), Refusal> {
    let user = headers.get("x-user").ok_or(Refusal::NoUser)?;
    let user = user.to_str().map_err(|_| Refusal::NoUser)?;
    let Json(order) = order.map_err(|error| Refusal::BadOrder(error.body_text()))?;
    let handled = shop.handle(user, order).await?;
    Ok((StatusCode::CREATED, Json(handled)))
}

async fn orders(State(shop): State<Shop>, Path(user): Path<String>) -> Json<Vec<Handled>> {
    Json(shop.orders(&user))
}
