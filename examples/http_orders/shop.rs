//! What an order is, and how it is handled.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::mails::{Mail, Mails};
use crate::refusal::Refusal;

/// Most orders that are remembered; older ones are forgotten.
const REMEMBERED: usize = 1_000;

/// Longest name of an item, in bytes.
const LONGEST: usize = 64;

/// What a user orders.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    item: String,
    /// How long the shop has to work on it, in milliseconds.
    #[serde(default = "usual")]
    takes_ms: u64,
}

fn usual() -> u64 {
    20
}

/// An order that has been handled.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Handled {
    pub(crate) number: u64,
    pub(crate) user: String,
    pub(crate) item: String,
}

/// The shop. Clones are the same shop.
#[derive(Clone)]
pub(crate) struct Shop {
    mails: Mails,
    book: Arc<Mutex<Book>>,
}

/// What has been handled, in that order.
#[derive(Default)]
struct Book {
    last_number: u64,
    handled: VecDeque<Handled>,
}

impl Shop {
    pub(crate) fn new(mails: Mails) -> Self {
        Self {
            mails,
            book: Arc::default(),
        }
    }

    /// Handles an order. The layer has seen to it that no other of this user is being handled.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing was done: what is to last is done after the last await.
    pub(crate) async fn handle(&self, user: &str, order: Order) -> Result<Handled, Refusal> {
        if order.item.is_empty() || order.item.len() > LONGEST {
            let what = format!("the item has 1 to {LONGEST} bytes");
            return Err(Refusal::BadOrder(what));
        }
        sleep(Duration::from_millis(order.takes_ms)).await;
        // Room for the mail first, so that no order is handled that cannot be confirmed.
        let room = self.mails.reserve().await.map_err(|_| Refusal::Closing)?;

        let mut book = self.lock();
        let number = book.last_number + 1;
        let user = user.to_owned();
        let mail = Mail {
            user: user.clone(),
            number,
        };
        room.send(mail).map_err(|_| Refusal::Overloaded)?;
        let item = order.item;
        let handled = Handled { number, user, item };
        book.last_number = number;
        book.handled.push_back(handled.clone());
        if book.handled.len() > REMEMBERED {
            book.handled.pop_front();
        }
        Ok(handled)
    }

    /// The orders of a user in the order in which they were handled.
    pub(crate) fn orders(&self, user: &str) -> Vec<Handled> {
        let of_user = |handled: &&Handled| handled.user == user;
        self.lock()
            .handled
            .iter()
            .filter(of_user)
            .cloned()
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
