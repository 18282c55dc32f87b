//! What has changed, for all waiters of a store in this process: one connection that is subscribed.
//!
//! A waiter begins to listen, looks at the election, and then waits. So it misses nothing while the
//! connection works. When that breaks, and when it is there again, all look. In between they look
//! at short intervals, and otherwise at long ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use keylane_connector::{ErrorKind, lock};
use keylane_leader::store::Election;
use redis::aio::{ConnectionLike, PubSubSink, PubSubStream};
use tokio::sync::broadcast::{self, Receiver, Sender, WeakSender};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::message::parse;
use super::names::Names;
use crate::error::RedisError;
use crate::link::Link;
use crate::reconnecting_link::ReconnectingLink;

/// How often a waiter looks while the connection works: a node that is cut off from its cluster
/// takes subscriptions and has no messages.
const SELDOM: Duration = Duration::from_secs(60);

/// How often it looks without a connection.
const OFTEN: Duration = Duration::from_secs(1);

/// The first pause before it connects again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The pause if the user may not subscribe.
const DENIED: Duration = Duration::from_secs(30);

/// After this silence the server is asked whether it is there, and for how long it may not answer.
const SILENCE: Duration = Duration::from_secs(5);

/// The most messages that a waiter can be behind. One that is behind more looks.
const BEHIND: usize = 256;

/// The feed of a store. Its connection is made for the first waiter, and closed with the store.
pub(super) struct Feed {
    link: Arc<ReconnectingLink>,
    names: Arc<Names>,
    running: Mutex<Option<Running>>,
}

/// The task that has the connection. It ends with its runtime: then the next waiter, in its own
/// runtime, starts another.
struct Running {
    news: WeakSender<News>,
    is_up: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone, Debug)]
enum News {
    /// An election has changed. This is the message.
    Message(Arc<[u8]>),
    /// The connection is there, or is there no more.
    Connection,
}

/// What a waiter listens to.
pub(super) struct Listener {
    news: Receiver<News>,
    is_up: Arc<AtomicBool>,
}

impl Feed {
    pub(super) fn new(link: Arc<ReconnectingLink>, names: Arc<Names>) -> Self {
        Self {
            link,
            names,
            running: Mutex::default(),
        }
    }

    /// Begins to listen.
    pub(super) fn listen(&self) -> Listener {
        let mut running = lock(&self.running);
        if let Some(running) = &*running
            && let Some(news) = running.news.upgrade()
        {
            return Listener {
                news: news.subscribe(),
                is_up: Arc::clone(&running.is_up),
            };
        }
        let (sender, news) = broadcast::channel(BEHIND);
        let is_up = Arc::new(AtomicBool::new(false));
        let weak = sender.downgrade();
        let speaker = Speaker {
            link: Arc::clone(&self.link),
            names: Arc::clone(&self.names),
            news: sender,
            is_up: Arc::clone(&is_up),
        };
        *running = Some(Running {
            news: weak,
            is_up: Arc::clone(&is_up),
            _task: AbortOnDropHandle::new(tokio::spawn(speaker.speak())),
        });
        Listener { news, is_up }
    }
}

impl Listener {
    /// Waits until an election becomes so that it concerns the caller. Returns `false` when it is
    /// time to look, whether anything has changed or not.
    pub(super) async fn hears(
        &mut self,
        name: &[u8],
        concerns: impl Fn(&Election) -> bool,
    ) -> bool {
        let pause = match self.is_up.load(Ordering::Relaxed) {
            true => SELDOM,
            false => OFTEN,
        };
        let heard = async {
            while let Ok(News::Message(message)) = self.news.recv().await {
                if let Some((now, of)) = parse(&message)
                    && of == name
                    && concerns(&now)
                {
                    return true;
                }
            }
            false
        };
        timeout(pause, heard).await.unwrap_or(false)
    }
}

struct Speaker {
    link: Arc<ReconnectingLink>,
    names: Arc<Names>,
    news: Sender<News>,
    is_up: Arc<AtomicBool>,
}

impl Speaker {
    async fn speak(self) {
        let (mut pause, mut is_denied) = (PAUSES.0, false);
        for attempt in 0.. {
            match self.subscribe(attempt).await {
                Ok(subscribed) => {
                    (pause, is_denied) = (PAUSES.0, false);
                    self.is(true);
                    self.pass_on(subscribed).await;
                    self.is(false);
                }
                Err(error) if error.kind() == ErrorKind::Denied => {
                    if !std::mem::replace(&mut is_denied, true) {
                        warn(&error);
                    }
                    sleep(DENIED).await;
                }
                Err(_) => pause = (pause * 2).min(PAUSES.1),
            }
            sleep(pause).await;
        }
    }

    async fn subscribe(&self, attempt: usize) -> Result<(PubSubSink, PubSubStream), RedisError> {
        let subscribe = async |link: &mut Link| {
            let channel = self.names.channel(link.get_db());
            link.subscribe(&channel, attempt).await
        };
        self.link.with(subscribe).await
    }

    /// Notes whether the connection is there, and has all waiters look.
    fn is(&self, up: bool) {
        // Before the news: a waiter that begins to listen after the news finds it so.
        self.is_up.store(up, Ordering::Relaxed);
        // Fails if there is no waiter.
        let _ = self.news.send(News::Connection);
    }

    /// Passes messages on until the connection has broken, or the server is silent.
    async fn pass_on(&self, (mut sink, mut messages): (PubSubSink, PubSubStream)) {
        loop {
            match timeout(SILENCE, messages.next()).await {
                Ok(Some(message)) => {
                    let message = News::Message(message.get_payload_bytes().into());
                    let _ = self.news.send(message);
                }
                Ok(None) => return,
                // A refusal is an answer, too.
                Err(_) => match timeout(SILENCE, sink.ping::<redis::Value>()).await {
                    Ok(_) => {}
                    Err(_) => return,
                },
            }
        }
    }
}

fn warn(error: &RedisError) {
    tracing::warn!(
        target: "keylane",
        error = %error,
        "changes of elections are noticed late: let the user subscribe to the channels of keylane",
    );
}
