//! keylane-redis on a stream.

use async_trait::async_trait;
use keylane::consume::Intake;
use keylane_redis::{Redis, StreamSource};
use redis::Client;
use redis::aio::MultiplexedConnection;

use super::keylane_list::{Lanes, consume};
use super::xreadgroup::{GROUP, STREAM, is_settled, store};
use super::{Contender, Setup};
use crate::Error;
use crate::message::Message;
use crate::work::Work;

pub(super) struct KeylaneStream {
    connection: MultiplexedConnection,
    setup: Setup,
    running: Vec<(Lanes, Intake)>,
}

impl KeylaneStream {
    pub(super) async fn open(setup: &Setup) -> Result<Self, Error> {
        let client = Client::open(setup.url.as_str())?;
        Ok(Self {
            connection: client.get_multiplexed_async_connection().await?,
            setup: setup.clone(),
            running: Vec::new(),
        })
    }
}

#[async_trait]
impl Contender for KeylaneStream {
    async fn store(&mut self, messages: &[Message]) -> Result<(), Error> {
        store(&mut self.connection, STREAM, messages).await
    }

    async fn begin(&mut self, work: &Work) -> Result<(), Error> {
        for number in 0..self.setup.workers {
            let source = StreamSource::builder(&Redis::at(&self.setup.url)?, GROUP)
                .stream(STREAM)
                .name(format!("worker-{number}"))
                // What cannot be decoded must have a place.
                .dead_letters("letters")
                .build()?;
            self.running.push(consume(source, work)?);
        }
        Ok(())
    }

    async fn is_confirmed(&mut self, _: u64) -> Result<bool, Error> {
        is_settled(&mut self.connection, STREAM, GROUP).await
    }

    async fn end(&mut self) {
        for (lanes, intake) in self.running.drain(..) {
            intake.stop().await;
            lanes.drain().await;
        }
    }
}
