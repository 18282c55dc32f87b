//! Where there is nothing right to replay there is an error, and never a report.

use crate::support::{Edit, Repo, replay};

#[tokio::test]
async fn an_empty_repository_has_nothing_to_replay() {
    let repo = Repo::empty();
    let error = replay(&[repo.name()]).await.error();
    assert!(error.contains("no commit to replay"), "{error}");
    assert!(error.contains("refs/heads/main is not born yet"), "{error}");
}

#[tokio::test]
async fn an_empty_bare_repository_has_nothing_to_replay() {
    let repo = Repo::init(&["--bare"]);
    let error = replay(&[repo.name()]).await.error();
    assert!(error.contains("no commit to replay"), "{error}");
}

#[tokio::test]
async fn a_head_without_its_commit_is_no_empty_repository() {
    let repo = three_commits();
    std::fs::remove_file(repo.loose_object("main")).unwrap();
    let error = replay(&[repo.name()]).await.error();
    assert!(error.contains("`git rev-parse` failed"), "{error}");
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let error = replay(&["no/such/folder"]).await.error();
    assert_eq!(error, "no/such/folder cannot be opened");
}

#[tokio::test]
async fn a_file_is_no_folder() {
    let repo = Repo::empty();
    let file = repo.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = replay(&[file.to_str().unwrap()]).await.error();
    assert!(error.ends_with("is not a folder"), "{error}");
}

#[tokio::test]
async fn a_history_with_a_hole_is_an_error_in_every_design() {
    let repo = three_commits();
    std::fs::remove_file(repo.loose_object("main~1^{tree}")).unwrap();
    for design in crate::support::DESIGNS {
        let error = replay(&[repo.name(), "--design", design]).await.error();
        assert!(error.contains("`git log` failed"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_commit_is_an_error() {
    let repo = three_commits();
    std::fs::remove_file(repo.loose_object("main~1")).unwrap();
    let error = replay(&[repo.name()]).await.error();
    assert!(error.contains("`git rev-list` failed"), "{error}");
}

#[tokio::test]
async fn contents_are_not_needed() {
    let repo = three_commits();
    std::fs::remove_file(repo.loose_object("main:a")).unwrap();
    replay(&[repo.name()]).await.assert_good(3, 1);
}

/// Few enough objects that git keeps each in a file of its own.
fn three_commits() -> Repo {
    Repo::new(|import| {
        for content in ["1", "2", "3"] {
            import.commit("main", &[Edit::file("a", content)]);
        }
    })
}
