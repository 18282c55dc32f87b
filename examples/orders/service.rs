//! The service: an inbox that stores, a dispatcher that handles, a server in front, and an honest end.

use std::future::{Future, IntoFuture, pending};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use keylane::consume::{Intake, IntakeSettings};
use keylane::source::Source;
use keylane_console::{Action, Console};
use keylane_inbox::Inbox;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::signal;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::app::{self, Shop};
use crate::arguments::Place;
use crate::figures::Figures;
use crate::ledger::Ledger;
use crate::order::Order;
use crate::shop::{self, Lanes};
use crate::{Failure, say};

/// How long what runs may take to finish when the service stops. What does not is started again with the
/// next start.
const GRACE: Duration = Duration::from_secs(10);

/// What an operator may do on the console. Nothing that loses an order. There is no token, because the
/// demo is on a machine of your own: a service behind a proxy needs one.
const ALLOWED: [Action; 4] = [
    Action::Pause,
    Action::Resume,
    Action::RetryNow,
    Action::RedriveLetters,
];

/// The inbox, in the directory of the service.
pub(crate) const INBOX: &str = "inbox";

/// The ledger, in the directory of the service.
pub(crate) const LEDGER: &str = "effects.log";

/// What the first line of a service begins with; its address follows.
pub(crate) const LISTENING: &str = "listening on http://";

/// Serves until Ctrl-C.
pub(crate) async fn serve(place: &Place) -> Result<(), Failure> {
    let service = Service::open(place).await?;
    say::line(service.lines(&place.directory));
    service.run(stop_signal()).await
}

/// Serves until the standard input ends, as it does when the demo says so, or dies.
pub(crate) async fn work(place: &Place) -> Result<(), Failure> {
    let service = Service::open(place).await?;
    say::line(format_args!("{LISTENING}{}", service.address));
    let input_ends = async {
        let mut input = tokio::io::stdin();
        while matches!(input.read(&mut [0; 64]).await, Ok(1..)) {}
    };
    let stop = async {
        tokio::select! {
            () = input_ends => {}
            () = stop_signal() => {}
        }
    };
    service.run(stop).await
}

struct Service {
    inbox: Inbox,
    lanes: Lanes,
    intake: Intake,
    shop: Shop,
    console: Console,
    listener: TcpListener,
    address: SocketAddr,
}

impl Service {
    async fn open(place: &Place) -> Result<Self, Failure> {
        // First, so that a port that is taken changes nothing on the disk.
        let listener = TcpListener::bind(("127.0.0.1", place.port)).await;
        let port = place.port;
        let listener = listener.map_err(|error| {
            format!("127.0.0.1:{port} cannot be listened on ({error}): name another --port")
        })?;
        let address = listener.local_addr()?;

        // The lock of the inbox is that of the directory, so it comes before the ledger.
        let inbox = Inbox::open(place.directory.join(INBOX)).await?;
        let ledger = Ledger::open(place.directory.join(LEDGER))?;
        let lanes = shop::lanes(ledger.clone())?;
        // What was stored before goes on here, each user where it was.
        let orders = inbox.source().decode(Order::decode);
        let intake = lanes.consume_with(orders, IntakeSettings::new().revoke_within(GRACE / 2))?;

        let console = Console::builder()
            .dispatcher("orders", &lanes)
            .intake("inbox", &intake)
            .letters("orders", inbox.letters())
            .allow(ALLOWED)
            .without_token()
            .build()?;
        let figures = Figures::start(&inbox, &lanes).await?;
        let shop = Shop::new(inbox.clone(), lanes.clone(), ledger, figures);
        Ok(Self {
            inbox,
            lanes,
            intake,
            shop,
            console,
            listener,
            address,
        })
    }

    /// Serves until `stop`, finishes what has started, and says what became of everything.
    async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let (told, is_told) = oneshot::channel::<()>();
        let app = app::routes(self.shop, self.intake.watch(), &self.console, self.address);
        // The console must know who asks.
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        let server = axum::serve(self.listener, app).with_graceful_shutdown(async {
            // It is told by the end of the sender.
            let _ = is_told.await;
        });
        let mut server = tokio::spawn(server.into_future());
        tokio::select! {
            () = stop => {}
            ended = &mut server => return Err(format!("the server has ended: {ended:?}").into()),
        }

        let stats = self.lanes.stats();
        let here = stats.accepted - stats.done - stats.dead_lettered;
        say::line(format_args!(
            "stopping: no more orders are taken, and the {here} that are here have 10 seconds to finish"
        ));
        let end = async {
            drop(told);
            // Its feeds have no end of their own.
            self.console.close();
            // A connection that does not end has nothing that is stored and not answered.
            let _ = timeout(GRACE, server).await;
            let intake = self.intake.stop().within(GRACE).await;
            say::line(format_args!("inbox to lanes: {intake}"));
            let lanes = self.lanes.drain().within(GRACE).await;
            say::line(format_args!("lanes:          {lanes}"));
            let left = self.inbox.stats().await?;
            self.inbox.close().await?;
            say::line(format_args!(
                "on the disk:    {} orders for the next start, {} dead letters",
                left.waiting, left.letters
            ));
            Ok(())
        };
        tokio::select! {
            ended = pin!(end) => ended,
            () = stop_signal() => {
                say::line("left at once: what is not done is started again with the next start");
                Ok(())
            }
        }
    }

    /// What to try.
    fn lines(&self, directory: &Path) -> String {
        let (address, directory) = (self.address, directory.display());
        format!(
            r#"{LISTENING}{address}   the console: lanes, why they wait, dead letters
Orders are kept in {directory}. Ctrl-C finishes what has started; kill -9 loses nothing either.

Durable when it is answered with 202; with an id it is stored once, however often it is sent:

  curl -sw '%{{http_code}}\n' http://{address}/orders --json '{{"id":"1","user":"ann","cents":250}}'

Whether it works, for a service manager, and why not:

  curl -sw '%{{http_code}}\n' http://{address}/health/ready http://{address}/health/live

A slow user, one whose bank declines, and ann beside them:

  for n in 1 2 3 4 5 6; do
    curl -s http://{address}/orders --json '{{"user":"slow","cents":100,"takes_ms":5000}}'
    curl -s http://{address}/orders --json '{{"user":"poor","cents":100,"declined":3}}'
    curl -s http://{address}/orders --json '{{"user":"ann","cents":100}}'
  done
"#
        )
    }
}

/// Ctrl-C, or what a service manager sends. If neither can be heard, only a kill ends the service, and
/// nothing is lost by that either.
pub(crate) async fn stop_signal() {
    let pressed = async {
        if signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminated = async {
        match signal::unix::signal(signal::unix::SignalKind::terminate()) {
            Ok(mut signals) => _ = signals.recv().await,
            Err(_) => pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = pending::<()>();
    tokio::select! {
        () = pressed => {}
        () = terminated => {}
    }
}
