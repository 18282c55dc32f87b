//! The server of a run, and the way of each process to it.

use std::net::{Ipv4Addr, SocketAddr};

use testkit_servers::proxy::Proxy;
use testkit_servers::{Postgres, ServerError, ZooKeeper};

use crate::Failure;
use crate::words::{Place, Store};

/// The server ends, and its files are removed, when this is dropped.
pub(crate) struct Site {
    /// Of each process, one that cuts it off.
    proxies: Vec<Proxy>,
    places: Vec<Place>,
    direct: Place,
    port: u16,
    _server: Server,
}

/// It is held, and never used.
#[expect(dead_code, reason = "the server runs until it is dropped")]
enum Server {
    Postgres(Postgres),
    ZooKeeper(ZooKeeper),
}

impl Site {
    pub(crate) async fn start(store: Store, processes: usize) -> Result<Self, Failure> {
        let (server, address, port) = started(store).await.map_err(|error| told(store, error))?;
        let mut proxies = Vec::new();
        for _ in 0..processes {
            let target = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            proxies.push(Proxy::to(target).await?);
        }
        let place = |address| Place { store, address };
        let through = proxies.iter().map(|proxy| {
            let (from, to) = (format!(":{port}"), format!(":{}", proxy.port()));
            place(address.replacen(&from, &to, 1))
        });
        Ok(Self {
            places: through.collect(),
            direct: place(address.clone()),
            proxies,
            port,
            _server: server,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The place, without a proxy.
    pub(crate) fn direct(&self) -> &Place {
        &self.direct
    }

    /// The place for a process.
    pub(crate) fn place(&self, process: usize) -> Place {
        self.places[process].clone()
    }

    pub(crate) fn cut(&self, process: usize) {
        self.proxies[process].cut();
    }

    pub(crate) fn heal(&self, process: usize) {
        self.proxies[process].heal();
    }
}

async fn started(store: Store) -> Result<(Server, String, u16), ServerError> {
    Ok(match store {
        Store::Postgres => {
            let server = Postgres::start().await?;
            let (url, port) = (server.create_database().await?, server.port());
            (Server::Postgres(server), url, port)
        }
        Store::Zookeeper => {
            let server = ZooKeeper::start().await?;
            let host = server.host(0);
            let port = host.rsplit(':').next().and_then(|port| port.parse().ok());
            (Server::ZooKeeper(server), host, port.unwrap_or_default())
        }
    })
}

/// What to do without the server.
fn told(store: Store, error: ServerError) -> Failure {
    let ServerError::Missing { what } = error else {
        return error.into();
    };
    let other = match store {
        Store::Postgres => "zookeeper",
        Store::Zookeeper => "postgres",
    };
    format!(
        "{store} is not installed here ({what} is missing): run `cargo xtask setup`, or take the other \
         store with `--store {other}`"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_without_a_server_is_said() {
        let text = told(Store::Zookeeper, ServerError::Missing { what: "java" }).to_string();
        for part in ["java is missing", "`cargo xtask setup`", "--store postgres"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
