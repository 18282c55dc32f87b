//! `keylane top`: a service in the terminal, over the feed of its console.

mod feed;

mod follow;

mod keys;

mod pace;

mod screen;

mod state;

mod view;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal};
use std::pin::pin;

use crossterm::event::{Event, EventStream};
use futures::StreamExt;
use futures::future::LocalBoxFuture;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::args::TopArgs;
use crate::console::Console;
use crate::failure::Failure;
use pace::Pace;
use screen::Screen;
use state::{State, Update, Want};

/// Updates on their way to the screen.
const ON_THEIR_WAY: usize = 4;

pub(crate) async fn run(args: TopArgs) -> Result<(), Failure> {
    let console = Console::open(args.console, &args.access)?;
    let done = on_screen(&console).await;
    console.sign_out().await;
    done
}

async fn on_screen(console: &Console) -> Result<(), Failure> {
    // What is wrong from the start is said without a screen.
    let _about: Value = console.get("about").await?;
    if !io::stdout().is_terminal() {
        return Err(Failure::Other(
            "this is no terminal: a program reads the same from `GET feed` of the console"
                .to_owned(),
        ));
    }
    let mut screen = Screen::open()?;
    show(console, &mut screen).await
}

/// What runs beside the screen, in the same task: a panic ends all of it.
struct Beside<'a> {
    /// The dispatcher whose lanes are followed.
    dispatcher: Option<String>,
    lanes: Option<LocalBoxFuture<'a, Infallible>>,
    find: Option<LocalBoxFuture<'a, Update>>,
}

async fn show(console: &Console, screen: &mut Screen) -> Result<(), Failure> {
    let (sender, mut updates) = mpsc::channel(ON_THEIR_WAY);
    let mut state = State::new(console.url());
    let mut overview = pin!(follow::follow_overview(console, &sender));
    let mut stopped = pin!(stopped());
    let (mut events, mut pace) = (EventStream::new(), Pace::new());
    let mut beside = Beside {
        dispatcher: None,
        lanes: None,
        find: None,
    };
    loop {
        let now = Instant::now();
        let due = pace.due(now);
        if due.is_some_and(|due| due <= now) {
            screen.draw(&state)?;
            pace.drawn(now);
            continue;
        }
        let want = tokio::select! {
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) if key.is_press() => keys::press(&mut state, key),
                Some(Ok(Event::Resize(..))) => Want::Nothing,
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
            Some(update) = updates.recv() => state.update(update),
            update = running(&mut beside.find) => {
                beside.find = None;
                state.update(update)
            }
            never = &mut overview => match never {},
            never = running(&mut beside.lanes) => match never {},
            () = sleep_until(due.unwrap_or(now)), if due.is_some() => continue,
            () = &mut stopped => return Ok(()),
        };
        pace.changed();
        match want {
            Want::Quit => return Ok(()),
            Want::Find { dispatcher, key } => {
                beside.find = Some(Box::pin(follow::find(console, dispatcher, key)));
            }
            Want::Nothing => {}
        }
        if beside.dispatcher != state.looks_at() {
            beside.dispatcher = state.looks_at();
            let (sender, dispatcher) = (&sender, beside.dispatcher.clone());
            beside.lanes = dispatcher.map(|name| {
                let lanes = async move { follow::follow_lanes(console, &name, sender).await };
                Box::pin(lanes) as LocalBoxFuture<'_, _>
            });
        }
    }
}

/// The result of a future that is there.
async fn running<T>(future: &mut Option<LocalBoxFuture<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Another program wants this one to end. A terminal sends Ctrl-C as a key.
async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let terminated = signal(SignalKind::terminate());
        if let Ok(mut terminated) = terminated {
            tokio::select! {
                _ = terminated.recv() => return,
                // Without a handler it stays as it is.
                Ok(()) = tokio::signal::ctrl_c() => return,
            }
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        pending::<()>().await;
    }
}
