//! What a user has set, or a repository brings along, changes nothing.

use std::fs;

use crate::git::Repository;
use crate::support::{Edit, Repo, replay};

#[tokio::test]
async fn no_setting_disturbs_the_history() {
    let repo = history();
    for (name, value) in [
        ("color.ui", "always"),
        ("color.diff", "always"),
        ("core.abbrev", "5"),
        ("core.pager", "false"),
        ("core.quotePath", "true"),
        ("diff.colorMoved", "plain"),
        ("diff.external", "false"),
        ("diff.ignoreSubmodules", "all"),
        ("diff.mnemonicPrefix", "true"),
        ("diff.noprefix", "true"),
        ("diff.orderFile", "no-such-file"),
        ("diff.relative", "true"),
        ("diff.renames", "copies"),
        ("diff.submodule", "log"),
        ("format.pretty", "fuller"),
        // Complains of its arguments, and that is what would be shown.
        ("gpg.program", "git"),
        ("i18n.logOutputEncoding", "UTF-16"),
        ("log.abbrevCommit", "true"),
        ("log.date", "relative"),
        ("log.decorate", "full"),
        ("log.diffMerges", "combined"),
        ("log.follow", "true"),
        ("log.showRoot", "false"),
        ("log.showSignature", "true"),
        ("notes.displayRef", "refs/notes/*"),
        ("pager.log", "false"),
        ("submodule.module.ignore", "all"),
        ("submodule.module.path", "module"),
    ] {
        repo.git(&["config", name, value]);
    }
    repo.git(&["notes", "add", "-m", "a note", "main"]);
    sign_head(&repo);
    let sub_folder = repo.path().join("sub");
    fs::create_dir(&sub_folder).unwrap();
    fs::write(repo.path().join(".gitattributes"), "* diff=broken\n").unwrap();
    repo.git(&["config", "diff.broken.textconv", "false"]);
    repo.git(&["config", "diff.broken.command", "false"]);

    replay(&[repo.name()]).await.assert_good(11, 8);
    // In a sub-folder settings have other effects, and the same must be none.
    let said = replay(&[sub_folder.to_str().unwrap()]).await;
    said.assert_good(11, 8);
    assert!(
        said.line("note")
            .ends_with("is the sub-folder sub/ of it: the whole repository is replayed")
    );
}

#[tokio::test]
async fn replacements_and_grafts_are_not_followed() {
    let repo = history();
    // The last commit without parents, once in each way that git knows.
    repo.git(&["replace", "--graft", "main"]);
    let head = repo.git(&["rev-parse", "main"]);
    fs::create_dir_all(repo.path().join(".git/info")).unwrap();
    fs::write(repo.path().join(".git/info/grafts"), format!("{head}\n")).unwrap();
    assert_eq!(repo.git(&["rev-list", "--count", "main"]), "1");
    assert_eq!(
        repo.git(&["--no-replace-objects", "rev-list", "--count", "main"]),
        "1"
    );

    let said = replay(&[repo.name()]).await;
    said.assert_good(11, 8);
    assert!(
        said.line("history").starts_with("3 commits "),
        "{}",
        said.out
    );
}

#[tokio::test]
async fn a_replaced_tree_is_the_real_one() {
    let repo = history();
    repo.git(&["replace", "main^{tree}", "main~1^{tree}"]);
    replay(&[repo.name()]).await.assert_good(11, 8);
}

#[tokio::test]
async fn a_head_that_moves_changes_nothing() {
    let repo = history();
    let pinned = Repository::open(repo.path()).await.unwrap();
    let before = pinned.tree().await.unwrap();
    repo.import(|import| {
        import
            .branch("next", "main")
            .commit("next", &[Edit::file("new", "1")]);
    });
    repo.git(&["update-ref", "refs/heads/main", "refs/heads/next"]);

    assert_eq!(pinned.tree().await.unwrap(), before);
    let mut history = pinned.history().unwrap();
    let mut events = 0;
    while history.next().await.unwrap().is_some() {
        events += 1;
    }
    assert_eq!(events, 11);
    replay(&[repo.name()]).await.assert_good(12, 9);
}

/// Puts a signature, which no key will ever match, on the last commit.
fn sign_head(repo: &Repo) {
    let commit = repo.git(&["cat-file", "commit", "main"]);
    let signature =
        "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n";
    fs::write(
        repo.path().join("commit"),
        commit.replacen("\n\n", signature, 1),
    )
    .unwrap();
    let signed = repo.git(&["hash-object", "-t", "commit", "-w", "commit"]);
    repo.git(&["update-ref", "refs/heads/main", &signed]);
}

/// Eleven events on eight paths, in three commits: a root, a branch's merge, renames and a module.
fn history() -> Repo {
    Repo::new(|import| {
        import
            .commit(
                "main",
                &[
                    Edit::file("from", "the same content before and after"),
                    Edit::file("sub/a", "1"),
                    Edit::submodule("module", '1'),
                    Edit::file("q\"\u{e5}", "1"),
                ],
            )
            .branch("side", "main")
            .commit("side", &[Edit::file("side", "1")])
            .merge(
                "main",
                "side",
                &[Edit::file("side", "1"), Edit::file("sub/a", "merged")],
            )
            .commit(
                "main",
                &[
                    Edit::delete("from"),
                    Edit::file("to", "the same content before and after"),
                    Edit::file("copy", "the same content before and after"),
                    Edit::submodule("module", '2'),
                    Edit::file(".gitmodules", MODULES),
                ],
            );
    })
}

const MODULES: &str = "[submodule \"module\"]\n\tpath = module\n\turl = x\n\tignore = all\n";
