//! Each kind of change, through each design: the end is what git lists.

use keylane_testkit::scenario::Random;

use crate::support::{DESIGNS, Edit, Repo, replay};

/// All that a history may hold, in one: 32 events on 22 paths.
fn every_kind_of_change() -> Repo {
    Repo::new(|import| {
        import
            // The root: 6.
            .commit(
                "main",
                &[
                    Edit::file("file", "1"),
                    Edit::file("renamed/from", "the same content before and after"),
                    Edit::file("becomes.executable", "x"),
                    Edit::file("becomes.link", "file"),
                    Edit::file("becomes.folder", "x"),
                    Edit::submodule("module", '1'),
                ],
            )
            // A rename, which is two events, a mode, two types, a submodule that moves: 2+1+1+2+1.
            .commit(
                "main",
                &[
                    Edit::delete("renamed/from"),
                    Edit::file("renamed/to", "the same content before and after"),
                    Edit::executable("becomes.executable", "x"),
                    Edit::link("becomes.link", "file"),
                    Edit::delete("becomes.folder"),
                    Edit::file("becomes.folder/inner", "x"),
                    Edit::submodule("module", '2'),
                ],
            )
            // Nothing at all.
            .commit("main", &[])
            // A branch of two commits that comes back as one change, and loses a file on the way.
            .branch("side", "main")
            .commit(
                "side",
                &[Edit::file("side/a", "1"), Edit::file("file", "side")],
            )
            .commit(
                "side",
                &[Edit::file("side/a", "2"), Edit::file("side/b", "1")],
            )
            // Meanwhile: 1.
            .commit("main", &[Edit::file("meanwhile", "1")])
            // The merge against its first parent: 3.
            .merge(
                "main",
                "side",
                &[
                    Edit::file("side/a", "2"),
                    Edit::file("side/b", "1"),
                    Edit::file("file", "side"),
                ],
            )
            // A second root, merged with nothing taken over.
            .commit("other", &[Edit::file("foreign", "1")])
            .merge("main", "other", &[])
            // A file to a submodule, a submodule to a file, a deletion, its return: 2+1 and 1.
            .commit(
                "main",
                &[
                    Edit::submodule("meanwhile", '3'),
                    Edit::file("module", "no more"),
                    Edit::delete("side/b"),
                ],
            )
            .commit("main", &[Edit::file("side/b", "1")])
            // Names: 11.
            .commit("main", &ODD_NAMES.map(|name| Edit::file(name, "x")));
    })
}

const ODD_NAMES: [&[u8]; 11] = [
    b" leading and trailing ",
    b"tab\tin it",
    b"line\nbreak",
    b"carriage\rreturn",
    b"\"quotes\" and \\backslash",
    b"commit 0123456789012345678901234567890123456789",
    b":100644 000000 a b D",
    b"--raw",
    "bl\u{e5}b\u{e6}r/\u{65e5}\u{672c}".as_bytes(),
    b"invalid \xff\xfe utf-8",
    b"\x1b[31mescape",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_change_ends_equal_in_every_design() {
    let repo = every_kind_of_change();
    for design in DESIGNS {
        let said = replay(&[repo.name(), "--design", design]).await;
        said.assert_good(32, 22);
        assert_eq!(said.line("design"), design);
        assert_eq!(said.line("state"), "equal to git ls-tree, 20 entries");
        assert!(
            said.line("history")
                .starts_with("9 commits along first parents")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_design_keeps_order_while_handlers_wait() {
    let repo = every_kind_of_change();
    for design in DESIGNS {
        let said = replay(&[repo.name(), "--design", design, "--work", "1ms"]).await;
        said.assert_good(32, 22);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_place_is_enough_for_every_design() {
    let repo = every_kind_of_change();
    for design in DESIGNS {
        let limits = ["--capacity", "1", "--concurrency", "1"];
        let said = replay(&[&[repo.name(), "--design", design], &limits[..]].concat()).await;
        said.assert_good(32, 22);
        assert!(said.line("at most").starts_with("1 handlers in flight,") || design == "static:3");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_of_few_paths_ends_equal_in_every_design() {
    let mut events = 0;
    let repo = Repo::new(|import| {
        // Each commit changes each of 50 paths with a chance of a half; content returns often.
        let (mut random, mut tree) = (Random::new(7), [None; 50]);
        for _ in 0..400 {
            let mut edits = Vec::new();
            for (number, standing) in tree.iter_mut().enumerate() {
                let path = format!("folder{}/file{number}", number % 7);
                let next = match random.below(8) {
                    0 => None,
                    kind @ 1..4 => Some(kind),
                    _ => continue,
                };
                if next != *standing {
                    events += 1;
                    edits.push(match next {
                        None => Edit::delete(path),
                        Some(1) => Edit::executable(path, "1"),
                        Some(kind) => Edit::file(path, &kind.to_string()),
                    });
                    *standing = next;
                }
            }
            import.commit("main", &edits);
        }
    });
    for design in DESIGNS {
        let said = replay(&[repo.name(), "--design", design]).await;
        assert!(matches!(said.good, Ok(true)), "{}", said.out);
        assert_eq!(said.line("events").replace(',', ""), events.to_string());
        assert_eq!(said.line("keys"), "50 paths");
    }
}

#[tokio::test]
async fn commits_without_changes_are_a_history_without_events() {
    let repo = Repo::new(|import| {
        import.commit("main", &[]).commit("main", &[]);
    });
    let said = replay(&[repo.name()]).await;
    said.assert_good(0, 0);
    assert_eq!(said.line("state"), "equal to git ls-tree, 0 entries");
    assert_eq!(said.line("hottest paths"), "none");
}

#[tokio::test]
async fn a_sha_256_repository_is_replayed_too() {
    let repo = Repo::init(&["--object-format=sha256"]);
    repo.import(|import| {
        import
            .commit("main", &[Edit::file("a", "1")])
            .commit("main", &[Edit::file("a", "2")]);
    });
    replay(&[repo.name()]).await.assert_good(2, 1);
}

#[tokio::test]
async fn modes_that_only_old_gits_wrote_end_equal() {
    let repo = Repo::new(|import| {
        import.commit("main", &[Edit::file("a", "1")]);
    });
    let mut tree = b"100664 a\0".to_vec();
    let id = repo.git(&["rev-parse", "main:a"]);
    for pair in id.as_bytes().chunks(2) {
        tree.push(u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap());
    }
    std::fs::write(repo.path().join("tree"), tree).unwrap();
    let tree = repo.git(&["hash-object", "-t", "tree", "-w", "--literally", "tree"]);
    let commit = repo.git(&["commit-tree", "-m", "old", &tree]);
    repo.git(&["update-ref", "refs/heads/main", &commit]);
    repo.import(|import| {
        import
            .branch("later", "main")
            .commit("later", &[Edit::file("b", "1")]);
    });
    repo.git(&["symbolic-ref", "HEAD", "refs/heads/later"]);
    replay(&[repo.name()]).await.assert_good(2, 2);
}

#[tokio::test]
async fn the_hottest_paths_come_first_and_on_one_line_each() {
    let repo = Repo::new(|import| {
        for number in 0..3 {
            import.commit("main", &[Edit::file("hot\nter", &number.to_string())]);
        }
        import.commit("main", &[Edit::file("b", "1"), Edit::file("a", "1")]);
    });
    let said = replay(&[repo.name(), "--hottest", "2"]).await;
    said.assert_good(5, 3);
    assert_eq!(said.line("hottest paths"), "3 hot\\nter");
    assert!(said.out.contains("\n               1 a\n"), "{}", said.out);
    assert!(!said.out.contains("1 b\n"), "{}", said.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_designs_stand_in_one_table() {
    let repo = every_kind_of_change();
    let said = replay(&[repo.name(), "--all", "--concurrency", "5"]).await;
    assert!(matches!(said.good, Ok(true)), "{:?}", said);
    for design in ["single", "per-key", "static:5", "dynamic"] {
        let row: Vec<&str> = said.line(design).split_whitespace().collect();
        assert_eq!(row[row.len() - 2..], ["0", "equal"], "{}", said.out);
    }
    assert!(said.line("(git alone)").ends_with('-'));
}
