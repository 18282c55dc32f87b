//! Repositories that are not whole, not here, or not alone: what is replayed is said.

use crate::support::{DESIGNS, Edit, Repo, replay};

#[tokio::test(flavor = "multi_thread")]
async fn a_shallow_clone_begins_with_a_whole_tree_and_says_so() {
    let origin = origin();
    let clone = origin.clone(&["--bare", "--depth=2"]);
    for design in DESIGNS {
        let said = replay(&[clone.name(), "--design", design]).await;
        // The tree of the third commit, three files, and the change of the fourth.
        said.assert_good(4, 3);
        let oldest = clone.git(&["rev-parse", "HEAD~1"]);
        let note = format!(
            "a shallow clone: what came before {} is not here",
            &oldest[..12]
        );
        assert!(said.out.contains(&note), "{}", said.out);
        assert!(
            said.line("history").starts_with("2 commits "),
            "{}",
            said.out
        );
    }
}

#[tokio::test]
async fn a_shallow_clone_that_lacks_nothing_on_the_way_says_so() {
    let origin = origin();
    // A long second parent, of which the clone has the last commit only.
    origin.import(|import| {
        import
            .commit("long", &[Edit::file("l", "1")])
            .commit("long", &[Edit::file("l", "2")])
            .commit("long", &[Edit::file("l", "3")])
            .commit("short", &[Edit::file("s", "1")])
            .merge("short", "long", &[Edit::file("l", "3")]);
    });
    let clone = origin.clone(&["--bare", "--depth=2", "--branch=short"]);
    let said = replay(&[clone.name()]).await;
    said.assert_good(2, 2);
    assert!(
        said.out.contains("but complete along first parents"),
        "{}",
        said.out
    );
}

#[tokio::test]
async fn a_partial_clone_is_replayed_without_fetching_contents() {
    let origin = origin();
    let clone = origin.clone(&["--bare", "--filter=blob:none"]);
    let missing = missing(&clone);
    assert_ne!(missing, 0);
    let said = replay(&[clone.name()]).await;
    said.assert_good(6, 3);
    assert!(said.out.contains("a partial clone"), "{}", said.out);
    assert_eq!(self::missing(&clone), missing);
}

#[tokio::test]
async fn a_partial_clone_without_trees_is_an_error_and_fetches_nothing() {
    let origin = origin();
    let clone = origin.clone(&["--bare", "--filter=tree:0"]);
    let missing = missing(&clone);
    let said = replay(&[clone.name()]).await;
    let error = said.error();
    assert!(error.contains("`git log` failed"), "{error}");
    assert!(said.out.contains("a partial clone"), "{}", said.out);
    assert_eq!(self::missing(&clone), missing);
}

#[tokio::test]
async fn a_bare_repository_is_replayed_and_said_to_be_one() {
    let origin = origin();
    let clone = origin.clone(&["--bare"]);
    let said = replay(&[clone.name()]).await;
    said.assert_good(6, 3);
    assert!(said.out.contains("a bare repository"), "{}", said.out);
}

#[tokio::test]
async fn the_data_folder_of_a_repository_stands_for_it() {
    let origin = origin();
    let data = origin.path().join(".git");
    replay(&[data.to_str().unwrap()]).await.assert_good(6, 3);
}

#[tokio::test]
async fn a_linked_working_tree_has_a_head_of_its_own() {
    let origin = origin();
    let linked = Repo::empty();
    let folder = linked.path().join("linked");
    origin.git(&[
        "worktree",
        "add",
        "--quiet",
        folder.to_str().unwrap(),
        "main~1",
    ]);
    let said = replay(&[folder.to_str().unwrap()]).await;
    said.assert_good(5, 3);
}

#[tokio::test]
async fn a_working_tree_that_differs_does_not_matter() {
    let origin = origin();
    origin.git(&["reset", "--hard", "--quiet"]);
    std::fs::write(origin.path().join("a"), "not committed").unwrap();
    std::fs::write(origin.path().join("new"), "staged").unwrap();
    origin.git(&["add", "new"]);
    replay(&[origin.name()]).await.assert_good(6, 3);
}

/// Four commits with three files, six events, for clones of every kind.
fn origin() -> Repo {
    let repo = Repo::new(|import| {
        import
            .commit("main", &[Edit::file("a", "1"), Edit::file("b", "1")])
            .commit("main", &[Edit::file("a", "2")])
            .commit("main", &[Edit::file("folder/c", "1"), Edit::file("b", "2")])
            .commit("main", &[Edit::file("a", "3")]);
    });
    repo.git(&["config", "uploadpack.allowFilter", "true"]);
    repo
}

/// How many objects a clone knows of and does not have.
fn missing(clone: &Repo) -> usize {
    let objects = clone.git(&["rev-list", "--objects", "--all", "--missing=print"]);
    objects.lines().filter(|line| line.starts_with('?')).count()
}
