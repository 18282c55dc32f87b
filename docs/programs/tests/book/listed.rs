//! Each chapter is in the list of chapters, and each program in a chapter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::book::{beside, chapters, files};
use crate::markdown::{includes, targets};

type Files = BTreeMap<PathBuf, String>;

/// Chapters that `SUMMARY.md` lacks.
fn unlisted(chapters: &Files) -> Vec<PathBuf> {
    let (summary, list) = chapters
        .iter()
        .find(|(file, _)| file.ends_with("SUMMARY.md"))
        .unwrap();
    let listed: BTreeSet<_> = targets(list)
        .iter()
        .map(|path| beside(summary, path))
        .collect();
    let all = chapters
        .keys()
        .filter(|file| *file != summary && !listed.contains(*file));
    all.cloned().collect()
}

/// Includes of what is not there, and programs or parts of them that are in no chapter.
fn faults(chapters: &Files, programs: &Files) -> Vec<String> {
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    for (file, text) in chapters {
        for (path, anchor) in includes(text) {
            let path = beside(file, path);
            let program = programs.get(&path);
            let has = |anchor| program.is_some_and(|text| parts(text).contains(&anchor));
            if program.is_none() || !anchor.is_none_or(has) {
                faults.push(format!("{} includes {}", file.display(), path.display()));
            }
            used.insert((path, anchor));
        }
    }
    for (program, text) in programs {
        if used.contains(&(program.clone(), None)) {
            continue;
        }
        let parts = parts(text);
        for part in &parts {
            if !used.contains(&(program.clone(), Some(*part))) {
                faults.push(name(program, part));
            }
        }
        if parts.is_empty() {
            faults.push(name(program, "all"));
        }
    }
    faults
}

fn name(program: &Path, part: &str) -> String {
    format!("{}: {part} is in no chapter", program.display())
}

/// The names of the parts of a program that can be included by themselves.
fn parts(program: &str) -> Vec<&str> {
    let lines = program.lines().map(str::trim_start);
    lines
        .filter_map(|line| line.strip_prefix("// ANCHOR: "))
        .collect()
}

#[test]
fn each_chapter_is_listed() {
    assert_eq!(unlisted(&chapters()), Vec::<PathBuf>::new());
}

#[test]
fn each_program_is_in_a_chapter() {
    assert_eq!(
        faults(&chapters(), &files("docs/programs/src", ".rs")),
        [""; 0]
    );
}

/// Code that no program has, because it is a line of another crate's manual, or what is replaced.
const INLINE: [&str; 2] = [
    "PrometheusBuilder::new().set_buckets(&[0.01, 0.1, 1.0, 10.0])?.install()?;",
    "let lock = locks.entry(account).or_default().clone(); // a DashMap of mutexes",
];

/// The first lines of blocks of Rust that include nothing, so no compiler sees them.
fn not_compiled(chapter: &str) -> Vec<&str> {
    let blocks = chapter.split("```rust").skip(1);
    let code = blocks.filter_map(|block| block.split_once('\n')?.1.lines().next());
    code.filter(|line| !line.starts_with("{{#include ") && !INLINE.contains(line))
        .collect()
}

#[test]
fn each_block_of_rust_is_part_of_a_program() {
    for (file, text) in chapters() {
        assert_eq!(not_compiled(&text), [""; 0], "{}", file.display());
    }
    let text =
        "```rust,ignore\n{{#include a.rs}}\n```\n```rust,ignore\nlet a = 1;\n```\n```sh\nb\n```";
    assert_eq!(not_compiled(text), ["let a = 1;"]);
}

/// What is said to be started is there.
#[test]
fn each_command_starts_a_program_that_is_there() {
    let programs = files("docs/programs/src", ".rs");
    for (file, text) in chapters() {
        for rest in text.split("-p programs --bin ").skip(1) {
            let name = rest.split_whitespace().next().unwrap();
            let path = PathBuf::from(format!("docs/programs/src/bin/{name}.rs"));
            assert!(programs.contains_key(&path), "{}: {name}", file.display());
        }
    }
}

#[test]
fn what_is_missing_is_found() {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let chapters = Files::from([
        file("src/SUMMARY.md", "[a](a.md)"),
        file(
            "src/a.md",
            "{{#include ../p/one.rs:x}} {{#include ../p/one.rs:z}} {{#include no.rs}}",
        ),
        file("src/b.md", ""),
    ]);
    let programs = Files::from([
        file("p/one.rs", "// ANCHOR: x\n// ANCHOR: y\n"),
        file("p/two.rs", ""),
    ]);
    assert_eq!(unlisted(&chapters), [PathBuf::from("src/b.md")]);
    let found = faults(&chapters, &programs);
    let wanted = [
        "src/a.md includes p/one.rs",
        "src/a.md includes src/no.rs",
        "p/one.rs: y is in no chapter",
        "p/two.rs: all is in no chapter",
    ];
    assert_eq!(found, wanted);
}
