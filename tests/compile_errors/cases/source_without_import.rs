//! A method of a trait that is not imported.

mod broker {
    use keylane::source::{
        Deliveries, Features, RawMessage, Received, Settlement, Source, SourceError,
    };

    pub(super) struct Broker;

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
}

fn main() {
    let _ = broker::Broker.decode(|_| Ok(7_u64));
}
