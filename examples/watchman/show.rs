//! A run: a server, three processes, faults, the timeline and the verdict.

use std::fs;
use std::path::Path;

use examples::say::{self, grouped, seconds};
use examples::stop_signal;
use tempfile::TempDir;

use crate::Failure;
use crate::arguments::Show;
use crate::books::Books;
use crate::chart::Chart;
use crate::course::Course;
use crate::crew::Crew;
use crate::judge::Verdict;
use crate::log::{Log, What};
use crate::picture::picture;
use crate::plan::Fault;
use crate::site::Site;
use crate::story::Story;
use crate::words::{Clock, Job, TTL, Word, Written};

/// The processes.
pub(crate) const NAMES: [&str; 3] = ["anna", "bert", "cora"];

/// `false` if an account was billed twice or skipped.
pub(crate) async fn show(show: &Show) -> Result<bool, Failure> {
    tokio::select! {
        shown = uninterrupted(show) => shown,
        () = stop_signal() => Err("interrupted; the processes and the server have ended".into()),
    }
}

async fn uninterrupted(show: &Show) -> Result<bool, Failure> {
    // Before all else, so that a run does not fail at its end.
    writable(&show.svg)?;
    let site = Site::start(show.store, NAMES.len()).await?;
    let (store, port) = (show.store, site.port());
    say::line(format_args!(
        "{store} runs on port {port} for this alone, and ends with it."
    ));
    Books::create(site.direct(), show.accounts).await?;
    let books = Books::open(site.direct()).await?;
    let how = match show.is_unfenced {
        false => "each with the fence of the leader's term",
        true => "without the fence",
    };
    say::line(format_args!(
        "One leader of three processes bills {} accounts once a second, {how}.\n\
         A leader that says nothing for {} has lost its term.\n",
        show.accounts,
        seconds(TTL),
    ));
    let folder = tempfile::tempdir()?;
    let clock = Clock::start();
    let crew = Crew::start(jobs(show, &site, &folder, clock)).await?;
    let mut course = Course {
        crew,
        site: &site,
        books: &books,
        clock,
    };
    let (last, end) = course.run(show.length, show.seed).await?;
    let log = course.crew.stop().await?;
    judged(show, &books, &log, last, Story::of(&log, &NAMES, end)).await
}

fn jobs(show: &Show, site: &Site, folder: &TempDir, clock: Clock) -> Vec<Job> {
    let jobs = NAMES.iter().enumerate().map(|(who, name)| Job {
        name: (*name).to_owned(),
        place: site.place(who),
        inbox: folder.path().join(name),
        accounts: show.accounts,
        clock,
        is_unfenced: show.is_unfenced,
    });
    jobs.collect()
}

async fn judged(
    show: &Show,
    books: &Books,
    log: &Log,
    last: u32,
    story: Story,
) -> Result<bool, Failure> {
    let entries = books.bills().await?;
    // A leader that has heard of the end late has billed one more, for all accounts.
    let periods = entries.iter().map(|entry| entry.bill.period).max();
    let periods = last.max(periods.unwrap_or(0));
    let verdict = Verdict::of(&entries, show.accounts, periods);
    let told = told(log, &story);
    let found = verdict.to_string();
    let found = found.lines().last().unwrap_or_default();
    let found = found.trim_start_matches("verdict").trim();
    let svg = &show.svg;
    fs::write(svg, picture(&story, &format!("{}: {found}.", show.store)))
        .map_err(|error| not_written(svg, &error))?;
    say::line(format_args!("\n{}\n{told}{verdict}", Chart(&story)));
    say::line(format_args!("picture         {}", svg.display()));
    Ok(verdict.is_good())
}

/// What the processes have counted.
fn told(log: &Log, story: &Story) -> String {
    let count = |of: &Written| {
        let lines = log.lines().iter();
        let found = lines.filter(
            |line| matches!(&line.what, What::Said(Word::Done(_, _, written)) if written == of),
        );
        grouped(found.count() as u64)
    };
    let faults = Fault::ALL.map(|fault| {
        let of_kind = story.faults.iter().filter(|mark| mark.fault == fault);
        of_kind.count()
    });
    let [killed, paused, cut, resigned] = faults;
    let gap = story
        .longest_gap()
        .map_or_else(String::new, |(gap, fault)| {
            let name = fault.name();
            format!("longest gap     {}: the leader {name}\n", seconds(gap))
        });
    format!(
        "faults          {killed} killed, {paused} paused, {cut} cut off, {resigned} resigned\n\
         {gap}\
         late bills      {} refused, because their term was over\n\
         done before     {}: found in the inbox again, and nothing changed\n",
        count(&Written::Refused),
        count(&Written::Earlier),
    )
}

fn writable(svg: &Path) -> Result<(), Failure> {
    if let Some(folder) = svg.parent() {
        fs::create_dir_all(folder).map_err(|error| not_written(svg, &error))?;
    }
    let file = fs::OpenOptions::new().append(true).create(true).open(svg);
    file.map(drop).map_err(|error| not_written(svg, &error))
}

fn not_written(svg: &Path, error: &std::io::Error) -> Failure {
    let svg = svg.display();
    format!("the picture cannot be written to {svg}: {error}; name another file with --svg").into()
}
