//! A repository, seen through the `git` command.
//!
//! Everything is asked about one commit, found once when the repository is opened, so a `HEAD` that
//! moves meanwhile changes nothing. A user's settings change nothing either: each one that shapes
//! the output is overridden, replacements and grafts are switched off, and git stays off the network.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::event::{Change, Entry, ObjectId, RepoPath};
use crate::raw::{self, Field, HistoryReader, RawError};

/// A repository and the commit that is replayed.
#[derive(Debug)]
pub(crate) struct Repository {
    folder: PathBuf,
    root: String,
    head: ObjectId,
    commits: u64,
    notes: Vec<String>,
}

impl Repository {
    /// Finds the repository around `folder`, as git does, and pins its `HEAD`.
    pub(crate) async fn open(folder: &Path) -> Result<Self, GitError> {
        match std::fs::metadata(folder) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(GitError::NotAFolder(folder.to_owned())),
            Err(error) => return Err(GitError::Folder(folder.to_owned(), error)),
        }
        // The folder's name comes last: it may itself contain line breaks.
        let facts = ask(folder, FACTS).await.map_err(|error| match error {
            GitError::Failed { said, .. } if said.contains("not a git repository") => {
                GitError::NoRepository(folder.to_owned())
            }
            other => other,
        })?;
        let mut facts = facts.splitn(4, |byte| *byte == b'\n');
        let mut fact = || facts.next().unwrap_or_default();
        let (bare, shallow, in_work_tree) = (fact(), fact(), fact());
        let git_folder = text(fact());
        let mut notes = Vec::new();

        let root = if in_work_tree == b"true" {
            let prefix = text(&ask(folder, &["rev-parse", "--show-prefix"]).await?);
            if !prefix.is_empty() {
                notes.push(format!(
                    "{} is the sub-folder {prefix} of it: the whole repository is replayed",
                    folder.display()
                ));
            }
            text(&ask(folder, &["rev-parse", "--show-toplevel"]).await?)
        } else {
            git_folder
        };
        if bare == b"true" {
            notes.push("a bare repository".to_owned());
        }

        let head = head(folder, &root).await?;
        let chain = FirstParents::walk(folder, &head).await?;
        notes.extend(chain.boundary_note(folder, shallow == b"true").await?);
        if is_partial(folder).await? {
            notes
                .push("a partial clone: no contents are needed, and nothing is fetched".to_owned());
        }
        Ok(Self {
            folder: folder.to_owned(),
            root,
            head,
            commits: chain.commits,
            notes,
        })
    }

    /// Where the repository is.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The commit that is replayed, whatever `HEAD` says by now.
    pub(crate) fn head(&self) -> ObjectId {
        self.head
    }

    /// How many commits the history has along first parents.
    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }

    /// What a reader of the report must know about this repository.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Starts reading the history, oldest commit first.
    pub(crate) fn history(&self) -> Result<History, GitError> {
        let head = self.head.to_string();
        let arguments: Vec<&str> = HISTORY
            .iter()
            .copied()
            .chain([head.as_str(), "--"])
            .collect();
        Ok(History {
            output: Output::start(&self.folder, &arguments)?,
            reader: HistoryReader::default(),
            expected: self.commits,
            commits: 0,
        })
    }

    /// What `git ls-tree` says the commit holds: the answer that a replay must arrive at.
    pub(crate) async fn tree(&self) -> Result<HashMap<RepoPath, Entry>, GitError> {
        let head = self.head.to_string();
        let arguments = ["ls-tree", "-r", "-z", "--full-tree", head.as_str()];
        let mut output = Output::start(&self.folder, &arguments)?;
        let mut tree = HashMap::new();
        while let Some(record) = output.field().await? {
            let (path, entry) = raw::tree_entry(record)?;
            if tree.insert(path.clone(), entry).is_some() {
                return Err(GitError::ListedTwice(path));
            }
        }
        output.end().await?;
        Ok(tree)
    }
}

/// The changes of a history, read from git while git is still writing them.
#[derive(Debug)]
pub(crate) struct History {
    output: Output,
    reader: HistoryReader,
    /// How many commits must come.
    expected: u64,
    commits: u64,
}

impl History {
    /// The next change; `None` only after git ended well and every commit was seen.
    pub(crate) async fn next(&mut self) -> Result<Option<Change>, GitError> {
        while let Some(field) = self.output.field().await? {
            match self.reader.field(field)? {
                Field::Commit(_) => self.commits += 1,
                Field::Modes => {}
                Field::Change(change) => return Ok(Some(change)),
            }
        }
        self.output.end().await?;
        if self.commits != self.expected || !self.reader.is_complete() {
            return Err(GitError::Incomplete {
                seen: self.commits,
                of: self.expected,
            });
        }
        Ok(None)
    }

    /// How many commits have begun.
    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    #[error("the `git` command was not found: install git, or put it on the PATH")]
    Missing,
    #[error("{} cannot be opened", .0.display())]
    Folder(PathBuf, #[source] io::Error),
    #[error("{} is not a folder", .0.display())]
    NotAFolder(PathBuf),
    #[error("{} is not inside a git repository", .0.display())]
    NoRepository(PathBuf),
    #[error("{root} has no commit to replay: {branch} is not born yet")]
    Unborn { root: String, branch: String },
    #[error("`git {command}` failed ({status}): {said}")]
    Failed {
        command: String,
        status: ExitStatus,
        said: String,
    },
    #[error("git ended after {seen} of {of} commits and called it a success")]
    Incomplete { seen: u64, of: u64 },
    #[error("git's output stops in the middle of a record")]
    Truncated,
    #[error("git lists {0} twice in one tree")]
    ListedTwice(RepoPath),
    #[error(transparent)]
    Raw(#[from] RawError),
    #[error("git cannot be run")]
    Io(#[from] io::Error),
}

/// Bare, shallow, in a work tree, and where the repository's data is.
const FACTS: &[&str] = &[
    "rev-parse",
    "--is-bare-repository",
    "--is-shallow-repository",
    "--is-inside-work-tree",
    "--absolute-git-dir",
];

/// One option for each setting that could change a byte of the output.
const HISTORY: &[&str] = &[
    "log",
    "--reverse",
    "--format=tformat:commit %H",
    "--raw",
    "-z",
    "--no-abbrev",
    // Along first parents a merge is one change: what it did to the branch it was made on.
    "--first-parent",
    "--diff-merges=first-parent",
    // The first commit's files are additions (log.showRoot).
    "--root",
    // A rename is a deletion and an addition: two keys, two events (diff.renames).
    "--no-renames",
    // Paths from the root, all of them, submodules included (diff.relative, diff.ignoreSubmodules).
    "--no-relative",
    "--ignore-submodules=none",
    // "No order file", in git's own words and on every system (diff.orderFile).
    "-O/dev/null",
    // ASCII stays ASCII (i18n.logOutputEncoding).
    "--encoding=UTF-8",
    // Signatures would be checked, and spoken of between the fields (log.showSignature).
    "--no-show-signature",
    // Those below change nothing in the gits that were tried; nothing says they never will.
    "-r",
    "--no-color",
    "--no-decorate",
    "--no-notes",
    "--submodule=short",
    "--no-ext-diff",
    "--no-textconv",
];

/// Variables by which a surrounding git (a hook, say) would lead us to another repository, or to
/// another view of this one.
const FOREIGN: &[&str] = &[
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIFF_OPTS",
    "GIT_DIR",
    "GIT_EXTERNAL_DIFF",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// A `git` that reads only what is really there.
fn git(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    for name in FOREIGN {
        command.env_remove(name);
    }
    command
        // One error message is recognised by its words.
        .env("LC_ALL", "C")
        .env(
            "GIT_GRAFT_FILE",
            if cfg!(windows) { "NUL" } else { "/dev/null" },
        )
        // A partial clone would fetch what it lacks, tree by tree. No protocol has this name.
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "none")
        .arg("-C")
        .arg(folder)
        .args(["--no-pager", "--no-replace-objects"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs a short command and returns its answer without the last line break.
async fn ask(folder: &Path, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
    let output = git(folder, arguments).output().await.map_err(not_started)?;
    if !output.status.success() {
        return Err(failed(arguments, output.status, &output.stderr));
    }
    let mut answer = output.stdout;
    answer.pop_if(|byte| *byte == b'\n');
    Ok(answer)
}

async fn head(folder: &Path, root: &str) -> Result<ObjectId, GitError> {
    let error = match ask(folder, &["rev-parse", "--verify", "HEAD^{commit}"]).await {
        Ok(id) => {
            return ObjectId::from_hex(&id).ok_or_else(|| RawError::new("HEAD", &id).into());
        }
        Err(error) => error,
    };
    // No commit: either the branch is not born, or something is broken, in git's words.
    let Ok(branch) = ask(folder, &["symbolic-ref", "--quiet", "HEAD"]).await else {
        return Err(error);
    };
    let branch = text(&branch);
    match ask(folder, &["for-each-ref", "--format=%(refname)", &branch]).await {
        Ok(found) if found.is_empty() => Err(GitError::Unborn {
            root: root.to_owned(),
            branch,
        }),
        _ => Err(error),
    }
}

async fn is_partial(folder: &Path) -> Result<bool, GitError> {
    let names = r"^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$";
    match ask(folder, &["config", "--get-regexp", names]).await {
        Ok(_) => Ok(true),
        Err(GitError::Failed { status, .. }) if status.code() == Some(1) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The commits from `HEAD` back along first parents.
struct FirstParents {
    commits: u64,
    oldest: String,
}

impl FirstParents {
    async fn walk(folder: &Path, head: &ObjectId) -> Result<Self, GitError> {
        let head = head.to_string();
        let arguments = ["rev-list", "--first-parent", head.as_str(), "--"];
        let mut output = Output::start(folder, &arguments)?;
        let mut chain = Self {
            commits: 0,
            oldest: String::new(),
        };
        while let Some(line) = output.line().await? {
            chain.commits += 1;
            chain.oldest = text(line);
        }
        output.end().await?;
        Ok(chain)
    }

    /// Says so when the oldest commit here is not the beginning.
    async fn boundary_note(
        &self,
        folder: &Path,
        shallow: bool,
    ) -> Result<Option<String>, GitError> {
        // The commit's own words: a walk hides the parents that a shallow clone lacks.
        let commit = ask(folder, &["cat-file", "commit", &self.oldest]).await?;
        let has_parent = commit
            .split(|byte| *byte == b'\n')
            .take_while(|line| !line.is_empty())
            .any(|line| line.starts_with(b"parent "));
        let oldest = &self.oldest[..12.min(self.oldest.len())];
        Ok(match (has_parent, shallow) {
            (true, _) => Some(format!(
                "a shallow clone: what came before {oldest} is not here, so the replay begins \
                 with that commit's whole tree"
            )),
            (false, true) => Some("a shallow clone, but complete along first parents".to_owned()),
            (false, false) => None,
        })
    }
}

/// A running git whose output is read as it comes.
#[derive(Debug)]
struct Output {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Read beside the output: a git that fills this pipe would otherwise stop for ever.
    stderr: JoinHandle<Vec<u8>>,
    arguments: Vec<String>,
    buffer: Vec<u8>,
}

impl Output {
    fn start(folder: &Path, arguments: &[&str]) -> Result<Self, GitError> {
        let mut child = git(folder, arguments).spawn().map_err(not_started)?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut stderr = child.stderr.take().expect("stderr is piped");
        let stderr = tokio::spawn(async move {
            let mut said = Vec::new();
            // What cannot be read is not worth an error of its own: the exit status decides.
            let _ = stderr.read_to_end(&mut said).await;
            said
        });
        Ok(Self {
            child,
            stdout: BufReader::with_capacity(1 << 17, stdout),
            stderr,
            arguments: arguments
                .iter()
                .map(|argument| (*argument).to_owned())
                .collect(),
            buffer: Vec::new(),
        })
    }

    /// The next field, without its NUL.
    async fn field(&mut self) -> Result<Option<&[u8]>, GitError> {
        self.until(0).await
    }

    /// The next line, without its line break.
    async fn line(&mut self) -> Result<Option<&[u8]>, GitError> {
        self.until(b'\n').await
    }

    async fn until(&mut self, end: u8) -> Result<Option<&[u8]>, GitError> {
        self.buffer.clear();
        if self.stdout.read_until(end, &mut self.buffer).await? == 0 {
            return Ok(None);
        }
        if self.buffer.pop_if(|byte| *byte == end).is_none() {
            // Cut off: git's own reason, if it has one, says more.
            self.end().await?;
            return Err(GitError::Truncated);
        }
        Ok(Some(&self.buffer))
    }

    /// Waits for git to exit, once its output is read.
    async fn end(&mut self) -> Result<(), GitError> {
        let status = self.child.wait().await?;
        if status.success() {
            return Ok(());
        }
        let said = (&mut self.stderr).await.unwrap_or_default();
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        Err(failed(&arguments, status, &said))
    }
}

fn not_started(error: io::Error) -> GitError {
    match error.kind() {
        io::ErrorKind::NotFound => GitError::Missing,
        _ => GitError::Io(error),
    }
}

fn failed(arguments: &[&str], status: ExitStatus, said: &[u8]) -> GitError {
    GitError::Failed {
        command: arguments.first().copied().unwrap_or_default().to_owned(),
        status,
        said: text(said).trim().to_owned(),
    }
}

/// For people to read; what is not UTF-8 is replaced.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
