//! The designs one after the other, the table, the picture.

use std::io::Write;
use std::path::PathBuf;

use crate::arguments::Arguments;
use crate::crowd::Crowd;
use crate::crowd_picture;
use crate::designs::{Choice, DesignError};
use crate::picture;
use crate::table;
use crate::traffic::Traffic;

/// True: every design handled every message once and in order.
pub(crate) async fn run(arguments: &Arguments, out: &mut impl Write) -> Result<bool, RunError> {
    let traffic = Traffic::new(arguments);
    write!(out, "{}", table::heading(&traffic))?;
    let mut outcomes = Vec::new();
    for choice in Choice::ALL {
        outcomes.push(choice.run(&traffic).await?);
    }
    write!(
        out,
        "\n{}\n{}",
        table::summary(&outcomes),
        table::worst(&traffic, &outcomes)
    )?;

    writeln!(out)?;
    write(out, arguments.out(), picture::draw(&traffic, &outcomes))?;
    if arguments.crowd > 0 {
        write!(out, "\n{}", table::crowd_heading(arguments.crowd))?;
        let crowds = Crowd::of_each(arguments.crowd).await?;
        write!(out, "\n{}\n", table::crowds(&crowds))?;
        write(out, arguments.crowd_out(), crowd_picture::draw(&crowds))?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.is_good()))
}

fn write(out: &mut impl Write, file: PathBuf, picture: String) -> Result<(), RunError> {
    match std::fs::write(&file, picture) {
        Ok(()) => Ok(writeln!(out, "picture: {}", file.display())?),
        Err(error) => Err(RunError::Picture { file, error }),
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Design(#[from] DesignError),
    #[error("the picture cannot be written to {}: {error}", file.display())]
    Picture {
        file: PathBuf,
        error: std::io::Error,
    },
    #[error("the table cannot be written: {0}")]
    Table(#[from] std::io::Error),
}
