//! What a path leads to: followed through `use` and re-exports to where it is defined.

use std::collections::BTreeSet;

use quote::ToTokens;
use syn::{Ident, Item, ItemUse, UseTree, Visibility};

use super::modules::Crate;
use super::words::words;

/// The names of all modules of a crate.
pub(in super::super) struct Names<'a> {
    code: &'a Crate,
    scopes: Vec<Scope>,
}

/// What a module names.
#[derive(Debug, Default)]
pub(in super::super) struct Scope {
    /// What it defines.
    items: BTreeSet<String>,
    /// One for each name that a `use` brings, also inside of a function.
    pub(in super::super) uses: Vec<Use>,
    /// The paths in its code.
    pub(in super::super) paths: Vec<Vec<String>>,
}

/// A name that comes from elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Use {
    /// Nothing for all names of a module.
    pub(in super::super) name: Option<String>,
    pub(in super::super) path: Vec<String>,
    pub(in super::super) reach: Reach,
}

/// Who may take a name from where it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Reach {
    /// This module and those below it.
    Here,
    /// Other modules of the crate.
    Crate,
    /// Other crates.
    Everyone,
}

impl Reach {
    pub(in super::super) fn of(visibility: &Visibility) -> Self {
        match visibility {
            Visibility::Public(_) => Self::Everyone,
            Visibility::Restricted(_) => Self::Crate,
            Visibility::Inherited => Self::Here,
        }
    }
}

/// Where a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Target {
    Module(usize),
    Item {
        /// The module that defines it.
        module: usize,
        name: String,
        /// What follows in the path: a variant, a method.
        rest: Vec<String>,
    },
}

/// What a word is if it can be both: in the middle of a path a module, at the end an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Preference {
    Module,
    Item,
}

/// The questions that are open while another one is answered: a circle of re-exports has no answer.
type Open = BTreeSet<(usize, String, Preference)>;

impl<'a> Names<'a> {
    pub(in super::super) fn of(code: &'a Crate) -> Self {
        let scopes = code.modules.iter().map(|module| scope(&module.items));
        Self {
            code,
            scopes: scopes.collect(),
        }
    }

    pub(in super::super) fn scope(&self, module: usize) -> &Scope {
        &self.scopes[module]
    }

    /// Where a path leads to that stands in a module. Nothing if it leads out of the crate.
    pub(in super::super) fn find(&self, module: usize, path: &[String]) -> Option<Target> {
        self.follow(module, path, Preference::Item, &mut Open::new())
    }

    /// Whether a name comes from a module that is declared here.
    pub(in super::super) fn comes_from_below(&self, module: usize, import: &Use) -> bool {
        let first = import.path.iter().find(|word| *word != "self");
        let children = &self.code.modules[module].children;
        first.is_some_and(|first| children.contains_key(first))
    }

    fn follow(
        &self,
        from: usize,
        path: &[String],
        last: Preference,
        open: &mut Open,
    ) -> Option<Target> {
        let mut module = from;
        for (at, word) in path.iter().enumerate() {
            match word.as_str() {
                "crate" if at == 0 => module = self.code.root_of(from),
                "self" if at == 0 => {}
                "super" => module = self.code.modules[module].parent?,
                _ => {
                    let is_last = at + 1 == path.len();
                    let preference = if is_last { last } else { Preference::Module };
                    match self.look_up(module, word, preference, open)? {
                        Target::Module(found) => module = found,
                        Target::Item { module, name, .. } => {
                            let rest = path[at + 1..].to_vec();
                            return Some(Target::Item { module, name, rest });
                        }
                    }
                }
            }
        }
        Some(Target::Module(module))
    }

    fn look_up(
        &self,
        module: usize,
        word: &str,
        preference: Preference,
        open: &mut Open,
    ) -> Option<Target> {
        let question = (module, word.to_owned(), preference);
        if !open.insert(question.clone()) {
            return None;
        }
        let found = match preference {
            Preference::Module => self
                .child(module, word)
                .or_else(|| self.item(module, word))
                .or_else(|| self.imported(module, word, preference, open)),
            Preference::Item => self
                .item(module, word)
                .or_else(|| self.imported(module, word, preference, open))
                .or_else(|| self.child(module, word)),
        };
        let found = found.or_else(|| self.one_of_all(module, word, preference, open));
        open.remove(&question);
        found
    }

    fn child(&self, module: usize, word: &str) -> Option<Target> {
        let child = self.code.modules[module].children.get(word);
        child.copied().map(Target::Module)
    }

    fn item(&self, module: usize, word: &str) -> Option<Target> {
        self.scopes[module]
            .items
            .contains(word)
            .then(|| Target::Item {
                module,
                name: word.to_owned(),
                rest: Vec::new(),
            })
    }

    fn imported(
        &self,
        module: usize,
        word: &str,
        preference: Preference,
        open: &mut Open,
    ) -> Option<Target> {
        let uses = self.scopes[module].uses.iter();
        uses.filter(|import| import.name.as_deref() == Some(word))
            .find_map(|import| self.follow(module, &import.path, preference, open))
    }

    /// Looks among the names that `use module::*` brings.
    fn one_of_all(
        &self,
        module: usize,
        word: &str,
        preference: Preference,
        open: &mut Open,
    ) -> Option<Target> {
        let uses = self.scopes[module].uses.iter();
        uses.filter(|import| import.name.is_none())
            .find_map(|import| {
                match self.follow(module, &import.path, Preference::Module, open)? {
                    Target::Module(other) => self.look_up(other, word, preference, open),
                    Target::Item { .. } => None,
                }
            })
    }
}

fn scope(items: &[Item]) -> Scope {
    let mut scope = Scope::default();
    for item in items {
        scope.items.extend(name(item));
        match item {
            Item::Use(declaration) => scope.uses.extend(uses(declaration)),
            Item::Mod(_) => {}
            item => {
                let words = words(item.to_token_stream());
                scope.paths.extend(words.paths);
                scope.uses.extend(words.uses.iter().flat_map(uses));
            }
        }
    }
    scope
}

/// The name that an item defines.
pub(in super::super) fn name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// The names that a declaration brings. One with `::` in front names other crates.
pub(in super::super) fn uses(declaration: &ItemUse) -> Vec<Use> {
    let mut uses = Vec::new();
    if declaration.leading_colon.is_none() {
        let reach = Reach::of(&declaration.vis);
        add_uses(&declaration.tree, &[], reach, &mut uses);
    }
    uses
}

fn add_uses(tree: &UseTree, prefix: &[String], reach: Reach, uses: &mut Vec<Use>) {
    let with = |word: &Ident| {
        let mut path = prefix.to_vec();
        // Behind a module, `self` is that module.
        if word != "self" || prefix.is_empty() {
            path.push(word.to_string().trim_start_matches("r#").to_owned());
        }
        path
    };
    let (name, path) = match tree {
        UseTree::Path(tree) => return add_uses(&tree.tree, &with(&tree.ident), reach, uses),
        UseTree::Group(group) => {
            for tree in &group.items {
                add_uses(tree, prefix, reach, uses);
            }
            return;
        }
        UseTree::Name(tree) => {
            let path = with(&tree.ident);
            (path.last().cloned(), path)
        }
        UseTree::Rename(tree) => (Some(tree.rename.to_string()), with(&tree.ident)),
        UseTree::Glob(_) => (None, prefix.to_vec()),
    };
    uses.push(Use { name, path, reach });
}

#[cfg(test)]
mod tests {
    use super::super::modules::tests::code_of;
    use super::*;

    /// Where a path in the file `from` leads to: `<file>`, or `<file> <item> <rest>`.
    fn found(files: &[(&str, &str)], from: &str, path: &str) -> Option<String> {
        let code = code_of(files);
        let modules = 0..code.modules.len();
        let from = modules
            .into_iter()
            .find(|module| code.path_of(*module) == from);
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        let target = Names::of(&code).find(from.unwrap(), &path)?;
        Some(match target {
            Target::Module(module) => code.path_of(module).to_owned(),
            Target::Item { module, name, rest } => {
                let words = [code.path_of(module), &name, &rest.join("::")];
                words.join(" ").trim_end().to_owned()
            }
        })
    }

    #[track_caller]
    fn leads(files: &[(&str, &str)], from: &str, path: &str, expected: &str) {
        assert_eq!(
            found(files, from, path).as_deref(),
            Some(expected),
            "{path}"
        );
    }

    #[test]
    fn a_path_leads_from_where_it_begins() {
        let files = [
            ("lib.rs", "mod a; struct Root;"),
            ("a.rs", "mod b; mod inner { struct Inner; } struct A;"),
            ("a/b.rs", "struct B;"),
        ];
        leads(&files, "a/b.rs", "crate::Root", "lib.rs Root");
        leads(&files, "a/b.rs", "super::A", "a.rs A");
        leads(&files, "a/b.rs", "super::super::Root", "lib.rs Root");
        leads(&files, "a/b.rs", "self::B", "a/b.rs B");
        leads(
            &files,
            "a/b.rs",
            "super::inner::Inner::new",
            "a.rs Inner new",
        );
        leads(&files, "a.rs", "b::B", "a/b.rs B");
        leads(&files, "lib.rs", "a::b", "a/b.rs");
        assert_eq!(found(&files, "a.rs", "Root"), None);
        assert_eq!(found(&files, "a.rs", "tokio::sync::Mutex"), None);
        assert_eq!(found(&files, "a.rs", "super::super::A"), None);
    }

    #[test]
    fn a_re_export_is_followed_to_what_it_names() {
        let files = [
            (
                "lib.rs",
                "mod a; mod d; pub use a::{B as C, c::{self, D}}; pub use a as renamed;",
            ),
            ("a/mod.rs", "mod b; pub(crate) use b::B; pub(crate) mod c;"),
            ("a/b.rs", "pub(crate) struct B;"),
            ("a/c.rs", "pub(crate) use super::super::d::*;"),
            ("d.rs", "mod e; pub use e::D; pub fn f() {}"),
            ("d/e.rs", "pub struct D;"),
        ];
        leads(&files, "d.rs", "crate::C", "a/b.rs B");
        leads(&files, "d.rs", "crate::c", "a/c.rs");
        leads(&files, "d.rs", "crate::D", "d/e.rs D");
        leads(&files, "d.rs", "crate::renamed::B", "a/b.rs B");
        leads(&files, "lib.rs", "c::f", "d.rs f");
        leads(&files, "lib.rs", "C::new::x", "a/b.rs B new::x");
    }

    #[test]
    fn a_module_and_an_item_may_share_a_name() {
        let files = [
            ("lib.rs", "mod run; use run::run;"),
            ("run.rs", "mod runner; pub use runner::run; pub struct Run;"),
            ("run/runner.rs", "pub fn run() {}"),
        ];
        leads(&files, "lib.rs", "run", "run/runner.rs run");
        leads(&files, "lib.rs", "run::Run", "run.rs Run");
        leads(&files, "run/runner.rs", "crate::run", "run/runner.rs run");
        leads(&files, "run/runner.rs", "crate::run::Run", "run.rs Run");
    }

    #[test]
    fn re_exports_in_a_circle_lead_nowhere() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub use crate::b::*; pub use crate::b::X;"),
            ("b.rs", "pub use crate::a::*; pub use crate::a::X;"),
        ];
        assert_eq!(found(&files, "lib.rs", "a::X"), None);
        assert_eq!(found(&files, "lib.rs", "a::Y"), None);
    }

    #[test]
    fn a_declaration_in_a_function_counts_as_one_of_its_module() {
        let files = [
            ("lib.rs", "mod a; fn f() { use a::B; }"),
            (
                "a.rs",
                "pub struct B; macro_rules! c { () => {} } pub(crate) use c;",
            ),
        ];
        leads(&files, "lib.rs", "B", "a.rs B");
        leads(&files, "lib.rs", "a::c", "a.rs c");
    }
}
