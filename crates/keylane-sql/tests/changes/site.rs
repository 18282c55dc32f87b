//! A server, with a proxy for each worker, and what leaders have written into it.

use std::net::{Ipv4Addr, SocketAddr};

use futures::future::join_all;
use keylane_sql::{Database, Tables};
use testkit_processes::elections::{Cut, Site, WORKERS, Write, Written};
use testkit_servers::proxy::Proxy;
use testkit_servers::{MariaDb, Postgres};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Postgres,
    MariaDb,
}

enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Server {
    async fn start(kind: Kind) -> Self {
        match kind {
            Kind::Postgres => Self::Postgres(Postgres::start().await.unwrap()),
            Kind::MariaDb => Self::MariaDb(MariaDb::start().await.unwrap()),
        }
    }

    async fn create_database(&self) -> String {
        let url = match self {
            Self::Postgres(server) => server.create_database().await,
            Self::MariaDb(server) => server.create_database().await,
        };
        url.unwrap()
    }

    async fn execute(&self, database: &str, sql: &str) -> String {
        let answer = match self {
            Self::Postgres(server) => server.execute(database, sql).await,
            Self::MariaDb(server) => server.execute(database, sql).await,
        };
        answer.unwrap()
    }

    async fn restart(&self) {
        match self {
            Self::Postgres(server) => {
                server.kill().await.unwrap();
                server.start_again().await.unwrap();
            }
            Self::MariaDb(server) => {
                server.kill().await.unwrap();
                server.start_again().await.unwrap();
            }
        }
    }

    fn port(&self) -> u16 {
        match self {
            Self::Postgres(server) => server.port(),
            Self::MariaDb(server) => server.port(),
        }
    }
}

pub(crate) struct Servers {
    server: Server,
    proxies: Vec<Proxy>,
    /// The address of the database, up to the port, and its name.
    address: (String, String),
}

impl Servers {
    pub(crate) async fn start(kind: Kind) -> Self {
        let server = Server::start(kind).await;
        let url = server.create_database().await;
        let database = Database::connect(&url).await.unwrap();
        database.migrate(&Tables::new()).await.unwrap();
        let (before, name) = url.rsplit_once('/').unwrap();
        let (user, _) = before.rsplit_once(':').unwrap();
        let (user, name) = (user.to_owned(), name.to_owned());
        let number = match kind {
            Kind::Postgres => "bigserial",
            Kind::MariaDb => "bigint auto_increment",
        };
        for table in ["fenced", "plain"] {
            let columns = format!("place {number} primary key, token bigint, number bigint");
            let create = format!("create table {table} ({columns})");
            server.execute(&name, &create).await;
        }
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        let proxies = join_all((0..WORKERS).map(|_| Proxy::to(to))).await;
        Self {
            server,
            proxies: proxies.into_iter().map(Result::unwrap).collect(),
            address: (user, name),
        }
    }

    /// In the order of the rows. A term locks the row of the last term before it draws a place, so
    /// places of two terms are in the order of their commits.
    async fn rows(&self, table: &str) -> Vec<Write> {
        let rows = format!("select concat(token, '/', number) from {table} order by place");
        let rows = self.server.execute(&self.address.1, &rows).await;
        let rows = rows.lines().map(|row| Write::parse(row).unwrap());
        rows.collect()
    }
}

impl Site for Servers {
    fn address(&self, worker: usize) -> String {
        let (user, name) = &self.address;
        format!("{user}:{}/{name}", self.proxies[worker].port())
    }

    fn cut(&self, worker: usize, cut: Cut) {
        match cut {
            Cut::Both => self.proxies[worker].cut(),
            Cut::Answers => self.proxies[worker].cut_to_client(),
        }
    }

    fn heal(&self, worker: usize) {
        self.proxies[worker].heal();
    }

    async fn restart(&self) {
        self.server.restart().await;
    }

    async fn written(&self) -> Written {
        Written {
            fenced: self.rows("fenced").await,
            plain: self.rows("plain").await,
        }
    }
}
