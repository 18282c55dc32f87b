//! The conformance suite of sources.

use std::sync::Arc;
use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane_kafka::{KafkaSource, Producer, Redrive};
use keylane_testkit::conformance::{Fault, Harness, Site};
use testkit_servers::Kafka;

use crate::protocol::Protocol;
use crate::support::{Topic, passes_through, shared, show_log};

mod classic {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Broker(super::Protocol::Eager)
    );
}

mod cooperative {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Broker(super::Protocol::Cooperative)
    );
}

mod consumer {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Broker(super::Protocol::New)
    );
}

struct Broker(Protocol);

struct Place {
    topic: Topic,
    protocol: Protocol,
    /// The topic of the dead letters.
    letters: Option<Topic>,
    /// The source goes through the proxy of its broker.
    is_proxied: bool,
}

#[keylane::async_trait]
impl Harness for Broker {
    type Site = Place;

    async fn site(&self, case: &str) -> Result<Place, BoxError> {
        show_log();
        let is_proxied = case == "stall";
        let kafka = match case {
            "restart" | "kill" | "stall" => Arc::new(Kafka::start().await?),
            _ => shared().await,
        };
        let topic = Topic::new(kafka, 3).await;
        let letters = match case {
            "dead_letter_at_source" | "round_trip" => Some(topic.beside(".dead", &[]).await),
            _ => None,
        };
        Ok(Place {
            topic,
            letters,
            protocol: self.0,
            is_proxied,
        })
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = vec![Fault::Restart, Fault::Kill, Fault::Stall, Fault::Lose];
        // A member that joins takes some of the partitions, perhaps not those of the case.
        if self.0 == Protocol::Eager {
            faults.push(Fault::Revoke);
        }
        // In this protocol the client library leaves such a member only by its own time-outs.
        if self.0 == Protocol::New {
            faults.retain(|fault| *fault != Fault::Lose);
        }
        faults
    }
}

#[keylane::async_trait]
impl Site for Place {
    type Source = KafkaSource;

    async fn source(&self) -> Result<KafkaSource, BoxError> {
        let kafka = &self.topic.kafka;
        let brokers = match self.is_proxied {
            true => kafka.proxied(),
            false => kafka.bootstrap(),
        };
        let mut builder = match self.protocol {
            Protocol::New => self.topic.builder_of_new_protocol(brokers),
            Protocol::Eager | Protocol::Cooperative => self.topic.builder_at(brokers),
        };
        for (name, value) in self.protocol.properties() {
            builder = builder.property(*name, *value);
        }
        if let Some(letters) = &self.letters {
            builder = builder.dead_letters(&letters.name);
        }
        Ok(builder.build()?)
    }

    async fn publish(&self, messages: Vec<RawMessage>) -> Result<(), BoxError> {
        self.topic.produce(messages).await;
        Ok(())
    }

    async fn left(&self) -> Result<usize, BoxError> {
        Ok(usize::try_from(self.topic.left().await)?)
    }

    async fn letters(&self) -> Result<Vec<RawMessage>, BoxError> {
        match &self.letters {
            Some(letters) => Ok(letters.records().await),
            None => Ok(Vec::new()),
        }
    }

    async fn redrive(&self) -> Result<bool, BoxError> {
        let Some(letters) = &self.letters else {
            return Ok(false);
        };
        let brokers = self.topic.kafka.bootstrap();
        let producer = Producer::builder(&brokers).build()?;
        Redrive::new(brokers, &letters.name, producer).run().await?;
        Ok(true)
    }

    async fn inject(&self, fault: Fault) -> Result<(), BoxError> {
        let kafka = &self.topic.kafka;
        match fault {
            Fault::Restart => {
                kafka.stop(0).await?;
                kafka.start_again(0).await?;
            }
            Fault::Kill => {
                kafka.kill(0).await?;
                kafka.start_again(0).await?;
            }
            Fault::Stall => {
                kafka.proxy(0).cut();
                let kafka = Arc::clone(kafka);
                tokio::spawn(async move {
                    // Longer than the source may be silent.
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    kafka.proxy(0).reset();
                    kafka.proxy(0).heal();
                });
            }
            Fault::Lose => self.topic.expel().await,
            Fault::Revoke => drop(passes_through(&self.topic, self.protocol.properties())),
            _ => return Err(format!("the harness cannot inject {fault}").into()),
        }
        Ok(())
    }
}
