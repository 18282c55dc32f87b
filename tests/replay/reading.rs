//! Git's output, field by field: what is right is understood, what is not is refused.

use crate::event::{ObjectId, RepoPath};
use crate::raw::{Field, HistoryReader, tree_entry};

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const NONE: &str = "0000000000000000000000000000000000000000";

#[test]
fn a_path_may_look_like_anything() {
    for path in [
        &b"commit "[..],
        b":000000",
        b"\n:",
        b"\xff\0"[..1].as_ref(),
        b"\n",
    ] {
        let mut reader = in_commit();
        let modes = format!("\n:100644 100755 {A} {B} M");
        assert_eq!(reader.field(modes.as_bytes()), Ok(Field::Modes));
        assert!(!reader.is_complete());
        let Ok(Field::Change(change)) = reader.field(path) else {
            panic!("no change")
        };
        assert!(reader.is_complete());
        assert_eq!(change.path, RepoPath::new(path));
        assert_eq!(change.before.unwrap().to_string(), format!("100644 {A}"));
        assert_eq!(change.after.unwrap().to_string(), format!("100755 {B}"));
    }
}

#[test]
fn zeros_are_nothing() {
    let mut reader = in_commit();
    reader
        .field(format!(":000000 120000 {NONE} {B} A").as_bytes())
        .unwrap();
    let Ok(Field::Change(change)) = reader.field(b"p") else {
        panic!("no change")
    };
    assert!(change.before.is_none() && change.after.is_some());
}

#[test]
fn what_was_not_asked_for_is_refused() {
    for field in [
        // Renames, copies, unmerged paths, scores.
        format!(":100644 100644 {A} {B} R100"),
        format!(":000000 100644 {NONE} {B} C75"),
        format!(":100644 000000 {A} {NONE} U"),
        // Merges against more than one parent.
        format!("::100644 100644 100644 {A} {A} {B} MM"),
        // Abbreviated, missing, too many.
        ":100644 100644 aaaaaaa bbbbbbb M".to_owned(),
        format!(":100644 100644 {A} {B}"),
        format!(":100644 100644 {A} {B} M x"),
        format!(":100644  {A} {B} M"),
        // A status that the modes belie, a file without a mode, a mode without a file.
        format!(":100644 100644 {A} {B} A"),
        format!(":000000 100644 {NONE} {B} D"),
        format!(":000000 100644 {A} {B} M"),
        format!(":100644 000000 {A} {B} D"),
        format!(":100648 100644 {A} {B} M"),
        format!(":0100644 100644 {A} {B} M"),
        // No change at all.
        "gpg: Good signature".to_owned(),
        "commit aaaa".to_owned(),
        String::new(),
    ] {
        let refused = in_commit().field(field.as_bytes());
        assert!(refused.is_err(), "{field:?} is {refused:?}");
    }
    // Nothing comes before the first commit, and no path is empty.
    let modes = format!(":100644 100644 {A} {B} M");
    assert!(HistoryReader::default().field(modes.as_bytes()).is_err());
    let mut reader = in_commit();
    reader.field(modes.as_bytes()).unwrap();
    assert!(reader.field(b"").is_err());
}

#[test]
fn only_the_first_tab_of_a_tree_entry_ends_anything() {
    let (path, entry) = tree_entry(format!("160000 commit {A}\ta\tb\n").as_bytes()).unwrap();
    assert_eq!(path, RepoPath::new(b"a\tb\n"));
    assert_eq!(entry.to_string(), format!("160000 {A}"));
    for record in [
        format!("100644 blob {A} p"),
        format!("100644 {A}\tp"),
        format!("100644 blob {A} 7\tp"),
        format!("100644 blob {A}\t"),
        format!("100644 blob {NONE}\tp"),
        "100644 blob aaaa\tp".to_owned(),
    ] {
        assert!(tree_entry(record.as_bytes()).is_err(), "{record:?}");
    }
}

#[test]
fn object_names_are_whole_and_of_either_length() {
    for length in [40, 64] {
        let name = "0123456789abcdef".repeat(4)[..length].to_owned();
        let id = ObjectId::from_hex(name.as_bytes()).unwrap();
        assert_eq!(id.to_string(), name);
        assert_eq!(format!("{id:.12}"), name[..12]);
    }
    for name in [&A[1..], "", &A.replace('a', "g"), &"a".repeat(63)] {
        assert!(ObjectId::from_hex(name.as_bytes()).is_none(), "{name}");
    }
    // A short name and a long one that begins alike are not the same.
    let long = ObjectId::from_hex("0".repeat(64).as_bytes());
    assert_ne!(long, ObjectId::from_hex(NONE.as_bytes()));
}

#[test]
fn a_path_is_shown_on_one_line_without_escape_codes() {
    let path = RepoPath::new(b"a\nb\t\x1b[31m\xff\xc3\xa9\\");
    assert_eq!(path.to_string(), "a\\nb\\t\\u{1b}[31m\\xff\u{e9}\\");
}

fn in_commit() -> HistoryReader {
    let mut reader = HistoryReader::default();
    let commit = reader.field(format!("commit {A}").as_bytes());
    assert!(matches!(commit, Ok(Field::Commit(id)) if id.to_string() == A));
    reader
}
