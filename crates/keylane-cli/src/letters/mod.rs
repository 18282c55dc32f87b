//! Dead letters: of an inbox, or of a running service through its console.

mod acts;

mod interrupt;

mod row;

mod shelf;

use crate::args::{Command, InboxArgs, LettersArgs, LettersCommand};
use crate::commands;
use crate::console::Console;
use crate::failure::Failure;
use crate::output::Output;
use acts::act;
use shelf::{Shelf, Wanted};

pub(crate) async fn run(args: LettersArgs) -> Result<(), Failure> {
    let command = args.command.unwrap_or_default();
    let Some(address) = args.console else {
        if let Some(letters) = args.letters {
            let without =
                format!("--letters {letters:?} are letters of a console: name it with --console");
            return Err(Failure::Other(without));
        }
        let command = in_inbox(command)?;
        let (place, form) = (args.place, args.form);
        return commands::run(InboxArgs {
            place,
            form,
            command,
        })
        .await;
    };
    let console = Console::open(address, &args.access)?;
    let mut out = Output::new(&args.form);
    let done = in_console(&console, args.letters, command, &mut out).await;
    console.sign_out().await;
    done
}

async fn in_console(
    console: &Console,
    name: Option<String>,
    command: LettersCommand,
    out: &mut Output,
) -> Result<(), Failure> {
    let shelf = Shelf::open(console, name).await?;
    match command {
        LettersCommand::List { key, after, limit } => {
            list(&shelf, Wanted::all_or_of(key)?, after, limit, out).await
        }
        LettersCommand::Show { id } => show(&shelf, &id, out).await,
        LettersCommand::Redrive { ids, all, key } => {
            let wanted = match (key, all) {
                (None, false) => Wanted::These(ids),
                (key, _) => Wanted::all_or_of(key)?,
            };
            act(&shelf, acts::REDRIVE, wanted, out).await
        }
        LettersCommand::Purge {
            ids,
            all,
            older_than,
        } => {
            let wanted = match (older_than, all) {
                (Some(time), _) => Wanted::older_than(time),
                (None, true) => Wanted::All,
                (None, false) => Wanted::These(ids),
            };
            act(&shelf, acts::PURGE, wanted, out).await
        }
    }
}

async fn list(
    shelf: &Shelf<'_>,
    wanted: Wanted,
    after: Option<String>,
    limit: usize,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut left = limit;
    let mut pages = shelf.pages(wanted.filter(), after);
    while left > 0
        && let Some(page) = pages.next().await?
    {
        for letter in page.iter().filter(|it| wanted.has(it)).take(left) {
            left -= 1;
            out.letter_row(&letter.shown())?;
        }
    }
    Ok(())
}

async fn show(shelf: &Shelf<'_>, id: &str, out: &mut Output) -> Result<(), Failure> {
    match shelf.letter(id).await? {
        Some(letter) => Ok(out.fields_of(&letter.shown())?),
        None => Err(Failure::Other(format!(
            "{id} is not a dead letter: it is redriven, purged, or was never one"
        ))),
    }
}

/// The same command for an inbox, whose letters are named by their sequences.
fn in_inbox(command: LettersCommand) -> Result<Command, Failure> {
    let sequence = |id: &String| {
        let parsed = id.parse::<u64>();
        parsed.map_err(|_| Failure::Other(format!("{id:?} is not a sequence: list the letters")))
    };
    let sequences = |ids: &[String]| ids.iter().map(sequence).collect::<Result<Vec<_>, _>>();
    Ok(match command {
        LettersCommand::List { key, after, limit } => Command::List {
            waiting: false,
            key,
            after: after.as_ref().map_or(Ok(0), sequence)?,
            limit,
        },
        LettersCommand::Show { id } => Command::Show {
            sequence: sequence(&id)?,
        },
        LettersCommand::Redrive { ids, all, key } => Command::Redrive {
            sequences: sequences(&ids)?,
            all,
            key,
        },
        LettersCommand::Purge {
            ids,
            all,
            older_than,
        } => Command::Purge {
            sequences: sequences(&ids)?,
            all,
            older_than,
        },
    })
}
