//! Circles of calls between the files that have the `impl` blocks of one type.
//!
//! A file calls another one when a method in it calls a method of the same type that is defined
//! there: `self.method()`, `Self::method` or `Type::method`. What is called on another value is not
//! seen.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens;

use super::circles::{Edges, circles};
use super::types::Definition;
use crate::house::code::{Crate, Names, Target, own_calls, words};
use crate::house::measure::Value;

/// How many files are in circles, added up over the types.
pub(super) fn value(code: &Crate, names: &Names, types: &[Definition]) -> Value {
    let mut found = Vec::new();
    for definition in types {
        let circles = circles(&edges(code, names, definition));
        found.extend(circles.into_iter().map(|circle| (&definition.id.1, circle)));
    }
    found.sort_by_key(|(_, circle)| Reverse(circle.len()));
    let lines = found.iter().map(|(name, circle)| {
        let paths: Vec<&str> = circle.iter().map(|file| &*code.files[*file].path).collect();
        format!("{name}, {} files: {}", paths.len(), paths.join(", "))
    });
    let total = found.iter().map(|(_, circle)| circle.len()).sum();
    (total, lines.collect())
}

fn edges(code: &Crate, names: &Names, definition: &Definition) -> Edges {
    let mut edges = Edges::new();
    let files = files_of_methods(code, definition);
    if files.values().flatten().collect::<BTreeSet<_>>().len() < 2 {
        return edges;
    }
    for block in &definition.blocks {
        let from = code.modules[block.module].file;
        for method in &block.methods {
            let body = method.block.to_token_stream();
            let mut called = own_calls(body.clone());
            called.extend(by_name(names, block.module, definition, body));
            for to in called.iter().filter_map(|name| files.get(name)).flatten() {
                if *to != from {
                    edges.entry(from).or_default().insert(*to);
                }
            }
        }
    }
    edges
}

/// The files that define the methods of each name. What a trait defines is hidden by a method of
/// the type itself.
fn files_of_methods(code: &Crate, definition: &Definition) -> BTreeMap<String, BTreeSet<usize>> {
    let of = |is_inherent: bool| {
        let mut files: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        let blocks = definition.blocks.iter();
        for block in blocks.filter(|block| block.is_inherent == is_inherent) {
            let file = code.modules[block.module].file;
            for method in &block.methods {
                let name = method.sig.ident.to_string();
                files.entry(name).or_default().insert(file);
            }
        }
        files
    };
    let mut files = of(false);
    files.extend(of(true));
    files
}

/// What is named behind the name of the type.
fn by_name(
    names: &Names,
    module: usize,
    definition: &Definition,
    body: proc_macro2::TokenStream,
) -> Vec<String> {
    let paths = words(body).paths;
    let called = paths.iter().filter_map(|path| {
        let Target::Item { module, name, rest } = names.find(module, path)? else {
            return None;
        };
        let is_this = (module, name) == definition.id;
        rest.into_iter().next().filter(|_| is_this)
    });
    called.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::code::code_of;
    use crate::house::measures::types::types;

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let code = code_of(files);
        let names = Names::of(&code);
        let (count, parts) = value(&code, &names, &types(&code, &names));
        assert_eq!(parts.is_empty(), count == 0);
        parts
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod a; mod b; mod c; pub struct Engine { x: u8 }");

    /// The circles of an engine with these methods in three files.
    fn circles_between(methods: [&str; 3]) -> Vec<String> {
        let file = |methods| format!("use super::Engine; impl Engine {{ {methods} }}");
        let [a, b, c] = methods.map(file);
        circles_of(&[ROOT, ("a.rs", &a), ("b.rs", &b), ("c.rs", &c)])
    }

    #[test]
    fn files_that_call_each_other_are_a_circle() {
        let circles = circles_between([
            "fn apply(&self) { self.settle(); }",
            "fn settle(&self) { if x { Self::store(1); } }",
            "fn store(n: u8) { iter.map(Engine::apply); }",
        ]);
        assert_eq!(circles, ["Engine, 3 files: a.rs, b.rs, c.rs"]);
    }

    #[test]
    fn one_direction_is_no_circle() {
        let circles = circles_between([
            "fn apply(&self) { self.settle(); self.store(); self.apply(); }",
            "fn settle(&self) { self.store(); self.other.apply(); self.x = self.apply; }",
            "fn store(&self) { other.apply(); external::apply(self); }",
        ]);
        assert_eq!(circles, [""; 0]);
    }

    #[test]
    fn calls_in_macros_are_calls() {
        let circles = circles_between([
            "fn apply(&self) { select! { x = self.settle() => {} } }",
            "fn settle(&self) { ready!(self.apply()); }",
            "",
        ]);
        assert_eq!(circles, ["Engine, 2 files: a.rs, b.rs"]);
    }

    #[test]
    fn methods_of_traits_belong_to_it() {
        let files = [
            ROOT,
            (
                "a.rs",
                "impl Future for super::Engine { fn poll(&mut self) { self.step(); } }
                 impl super::Engine { fn helped(&self) {} }",
            ),
            (
                "b.rs",
                "use crate::Engine; impl Engine { fn step(&self) { self.helped(); } }",
            ),
            ("c.rs", ""),
        ];
        assert_eq!(circles_of(&files), ["Engine, 2 files: a.rs, b.rs"]);
        let files = [
            ROOT,
            (
                "a.rs",
                "use super::Engine; impl Engine { fn step(&self) { self.next(); } }",
            ),
            (
                "b.rs",
                "impl Iterator for super::Engine { fn next(&mut self) { self.step(); } }",
            ),
            ("c.rs", ""),
        ];
        assert_eq!(circles_of(&files), ["Engine, 2 files: a.rs, b.rs"]);
    }

    #[test]
    fn a_method_of_the_type_hides_one_of_a_trait() {
        let files = [
            ROOT,
            (
                "a.rs",
                "use super::Engine; impl Clone for Engine { fn clone(&self) { self.step() } }",
            ),
            (
                "b.rs",
                "use super::Engine; impl Engine { fn step(&self) { self.clone(); } }",
            ),
            (
                "c.rs",
                "use super::Engine; impl Engine { fn clone(&self) {} }",
            ),
        ];
        assert_eq!(circles_of(&files), [""; 0]);
    }

    #[test]
    fn tests_call_what_they_like() {
        let circles = circles_between([
            "fn apply(&self) { self.settle(); }",
            "fn settle(&self) {} #[cfg(test)] fn check(&self) { self.apply() }",
            "",
        ]);
        assert_eq!(circles, [""; 0]);
    }
}
