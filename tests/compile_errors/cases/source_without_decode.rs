//! A source of raw messages is consumed by a dispatcher of orders.

use keylane::source::{
    Deliveries, Features, RawMessage, Received, Settlement, Source, SourceError,
};
use keylane::{Dispatcher, OnExhausted};

#[derive(Clone)]
struct Order(u64);

struct Broker;

impl Source for Broker {
    type Message = RawMessage;
    type Position = u64;

    fn features(&self) -> Features {
        Features::new()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn receive(
        &mut self,
        _: &mut Deliveries<RawMessage, u64>,
    ) -> Result<Received<u64>, SourceError> {
        Ok(Received::End)
    }

    async fn settle(&mut self, _: &[Settlement<u64>]) -> Result<(), SourceError> {
        Ok(())
    }
}

fn main() {
    let orders = Dispatcher::builder(|order: &Order| order.0)
        .on_exhausted(OnExhausted::Halt)
        .spawn(|_: Order| async move { Ok::<(), std::io::Error>(()) })
        .unwrap();
    let _ = orders.consume(Broker);
}
