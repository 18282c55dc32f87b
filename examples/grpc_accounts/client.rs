//! Asking a server.

use std::net::SocketAddr;

use clap::Subcommand;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::BoxError;

use crate::lanes::HEADER;
use crate::wire::accounts_client::AccountsClient;
use crate::wire::{Cents, Nothing};

/// What can be asked.
#[derive(Subcommand)]
pub(crate) enum Ask {
    /// Put money in
    Deposit { account: String, cents: u64 },
    /// Take money out
    Withdraw { account: String, cents: u64 },
    /// See how much there is
    Balance { account: String },
}

impl Ask {
    /// Asks the server at this port, and prints its answer.
    pub(crate) async fn put(self, port: u16) -> Result<(), BoxError> {
        if port == 0 {
            return Err("name the server's port, which it prints: --port PORT".into());
        }
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut client = Client::connect(address)
            .await
            .map_err(|_| format!("no server answers at {address}"))?;
        let answer = match &self {
            Self::Deposit { account, cents } => client.deposit(account, *cents).await,
            Self::Withdraw { account, cents } => client.withdraw(account, *cents).await,
            Self::Balance { account } => client.balance(account).await,
        };
        match answer {
            Ok(cents) => println!("{cents} cents"),
            Err(status) => return Err(format!("{:?}: {}", status.code(), status.message()).into()),
        }
        Ok(())
    }
}

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Client(AccountsClient<Channel>);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, tonic::transport::Error> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect()
            .await?;
        Ok(Self(AccountsClient::new(channel)))
    }

    pub(crate) async fn deposit(&mut self, account: &str, cents: u64) -> Result<u64, Status> {
        let call = call(account, Cents { cents })?;
        Ok(self.0.deposit(call).await?.into_inner().cents)
    }

    pub(crate) async fn withdraw(&mut self, account: &str, cents: u64) -> Result<u64, Status> {
        let call = call(account, Cents { cents })?;
        Ok(self.0.withdraw(call).await?.into_inner().cents)
    }

    pub(crate) async fn balance(&mut self, account: &str) -> Result<u64, Status> {
        Ok(self
            .0
            .balance(call(account, Nothing {})?)
            .await?
            .into_inner()
            .cents)
    }
}

/// A call for this account: the metadata names it, see `lanes.rs`.
fn call<T>(account: &str, message: T) -> Result<Request<T>, Status> {
    let account: AsciiMetadataValue = account
        .parse()
        .map_err(|_| Status::invalid_argument("an account is named in visible ASCII"))?;
    let mut call = Request::new(message);
    call.metadata_mut().insert(HEADER, account);
    Ok(call)
}
