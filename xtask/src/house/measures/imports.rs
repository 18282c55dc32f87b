//! Circles of imports between the files of a crate.
//!
//! A file imports another one when it names what that one defines, in a `use` or in a path. A name
//! that is re-exported on the way is followed to the file that defines it. A `mod` and the
//! re-export of what is below are no imports: they are the table of contents.

use super::circles::{Edges, circles};
use crate::house::code::{Crate, Names, Reach, Target};
use crate::house::measure::Value;

/// How many files are in circles.
pub(super) fn value(code: &Crate, names: &Names) -> Value {
    let circles = circles(&edges(code, names));
    let lines = circles.iter().map(|circle| {
        let paths: Vec<&str> = circle.iter().map(|file| &*code.files[*file].path).collect();
        format!("{} files: {}", paths.len(), paths.join(", "))
    });
    (circles.iter().map(Vec::len).sum(), lines.collect())
}

fn edges(code: &Crate, names: &Names) -> Edges {
    let mut edges = Edges::new();
    for (number, module) in code.modules.iter().enumerate() {
        let scope = names.scope(number);
        let is_contents = |import| names.comes_from_below(number, import);
        let imports = scope.uses.iter();
        let imports = imports
            .filter(|import| import.reach == Reach::Here || !is_contents(import))
            .map(|import| &import.path);
        for path in imports.chain(&scope.paths) {
            let Some(target) = names.find(number, path) else {
                continue;
            };
            let (Target::Module(other) | Target::Item { module: other, .. }) = target;
            let file = code.modules[other].file;
            if file != module.file {
                edges.entry(module.file).or_default().insert(file);
            }
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::code::code_of;

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let code = code_of(files);
        let (count, parts) = value(&code, &Names::of(&code));
        assert_eq!(parts.is_empty(), count == 0);
        parts
    }

    #[track_caller]
    fn circle_of(files: &[(&str, &str)], expected: &str) {
        assert_eq!(circles_of(files), [expected]);
    }

    #[test]
    fn two_files_that_use_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod aside; mod inlet; mod other;"),
            ("aside.rs", "use super::inlet::Waiting; pub struct Aside;"),
            (
                "inlet.rs",
                "use super::aside::{First as _, Aside}; pub struct Waiting;",
            ),
            (
                "other.rs",
                "use crate::{aside::Aside, inlet::{self, Waiting}};",
            ),
        ];
        circle_of(&files, "2 files: aside.rs, inlet.rs");
    }

    #[test]
    fn a_path_is_an_import_too() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub struct A; fn f() { vec![crate::b::B::new()]; }"),
            ("b.rs", "pub struct B; impl B { fn g(a: &super::c::C) {} }"),
            ("c.rs", "pub struct C; fn h() { use crate::a; a::A; }"),
        ];
        circle_of(&files, "3 files: a.rs, b.rs, c.rs");
    }

    #[test]
    fn a_re_export_is_followed_to_the_file_that_defines_the_name() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            (
                "a/mod.rs",
                "mod x; pub use x::X as Y; mod z; pub(crate) use z::*;",
            ),
            ("a/x.rs", "use crate::b::B; pub struct X;"),
            ("a/z.rs", "pub struct Z;"),
            ("b.rs", "use crate::a::{Y, Z}; pub struct B;"),
        ];
        circle_of(&files, "2 files: a/x.rs, b.rs");
    }

    #[test]
    fn a_table_of_contents_imports_nothing() {
        let files = [
            (
                "lib.rs",
                "mod a; pub use a::A; pub(crate) use self::a::f; pub struct Root;",
            ),
            ("a.rs", "use super::Root; pub struct A; pub fn f() {}"),
        ];
        assert_eq!(circles_of(&files), [""; 0]);
        // But what is used here, is imported.
        for used in [
            "use a::A as B;",
            "fn g() { a::f() }",
            "fn g() { f() }",
            "struct C(A);",
        ] {
            let root = format!("{} {used}", files[0].1);
            circle_of(&[("lib.rs", &root), files[1]], "2 files: lib.rs, a.rs");
        }
        // And what is no part of it, also where it goes on to others.
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub use super::b::B; pub struct A;"),
            ("b.rs", "use super::a::A; pub struct B;"),
        ];
        circle_of(&files, "2 files: a.rs, b.rs");
    }

    #[test]
    fn all_names_of_a_module_are_those_that_are_used() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod x; pub use x::X;"),
            ("a/x.rs", "use crate::b::B; pub struct X;"),
            ("b.rs", "use crate::a::*; pub struct B(X);"),
        ];
        circle_of(&files, "2 files: a/x.rs, b.rs");
        let unused = ("b.rs", "use crate::a::*; pub struct B;");
        assert_eq!(circles_of(&[files[0], files[1], files[2], unused]), [""; 0]);
    }

    #[test]
    fn a_file_may_be_anywhere() {
        let files = [
            ("lib.rs", "mod a; #[path = \"elsewhere/c.rs\"] mod b;"),
            (
                "a.rs",
                "use crate::b::B; pub struct A; mod inner { use super::A; }",
            ),
            ("elsewhere/c.rs", "use crate::a::A; pub struct B;"),
        ];
        circle_of(&files, "2 files: a.rs, elsewhere/c.rs");
    }

    #[test]
    fn tests_import_what_they_like() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }",
            ),
            ("b.rs", "use crate::a::A; pub struct B;"),
        ];
        assert_eq!(circles_of(&files), [""; 0]);
    }
}
