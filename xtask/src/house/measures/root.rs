//! What others find at the root of a library.

use std::collections::BTreeSet;

use syn::{Item, Visibility};

use crate::house::code::{Crate, Names, Reach, Target, Use, name, uses};
use crate::house::measure::Value;

/// The public items and re-exports at the root, and the macros that the crate exports.
pub(super) fn names(code: &Crate, names: &Names) -> Value {
    let mut public = PublicNames {
        code,
        names,
        modules: BTreeSet::new(),
        all: BTreeSet::new(),
    };
    roots(code).for_each(|root| public.add(root));
    let items = code.modules.iter().flat_map(|module| &module.items);
    public.all.extend(items.filter_map(exported_macro));
    count(public.all)
}

/// The public modules at the root.
pub(super) fn modules(code: &Crate) -> Value {
    let items = roots(code).flat_map(|root| &code.modules[root].items);
    let modules = items.filter_map(|item| match item {
        Item::Mod(module) if is_public(&module.vis) => Some(module.ident.to_string()),
        _ => None,
    });
    count(modules.collect())
}

struct PublicNames<'a> {
    code: &'a Crate,
    names: &'a Names<'a>,
    /// The modules whose names are in.
    modules: BTreeSet<usize>,
    all: BTreeSet<String>,
}

impl PublicNames<'_> {
    /// Adds the public names of a module.
    fn add(&mut self, module: usize) {
        if !self.modules.insert(module) {
            return;
        }
        for item in &self.code.modules[module].items {
            match item {
                Item::Use(declaration) => {
                    for import in uses(declaration) {
                        self.add_import(module, import);
                    }
                }
                item if is_public(visibility(item)) => self.all.extend(name(item)),
                _ => {}
            }
        }
    }

    fn add_import(&mut self, module: usize, import: Use) {
        if import.reach != Reach::Everyone {
            return;
        }
        match (import.name, self.names.find(module, &import.path)) {
            (Some(name), _) => _ = self.all.insert(name),
            (None, Some(Target::Module(other))) => self.add(other),
            (None, _) => _ = self.all.insert(format!("{}::*", import.path.join("::"))),
        }
    }
}

fn roots(code: &Crate) -> impl Iterator<Item = usize> {
    let modules = code.modules.iter().enumerate();
    modules.filter_map(|(number, module)| module.parent.is_none().then_some(number))
}

fn exported_macro(item: &Item) -> Option<String> {
    match item {
        Item::Macro(item) => {
            let is_exported =
                |attribute: &syn::Attribute| attribute.path().is_ident("macro_export");
            let name = item.ident.as_ref()?.to_string();
            item.attrs.iter().any(is_exported).then_some(name)
        }
        _ => None,
    }
}

fn visibility(item: &Item) -> &Visibility {
    match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::TraitAlias(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Union(item) => &item.vis,
        _ => &Visibility::Inherited,
    }
}

fn is_public(visibility: &Visibility) -> bool {
    Reach::of(visibility) == Reach::Everyone
}

fn count(names: BTreeSet<String>) -> Value {
    let all: Vec<String> = names.into_iter().collect();
    (all.len(), vec![all.join(", ")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::code::code_of;

    fn names_of(files: &[(&str, &str)]) -> String {
        let code = code_of(files);
        let (count, parts) = super::names(&code, &Names::of(&code));
        assert_eq!(
            count,
            parts[0].split(", ").filter(|name| !name.is_empty()).count()
        );
        parts[0].clone()
    }

    #[test]
    fn items_and_re_exports_are_names() {
        let files = [
            (
                "lib.rs",
                "pub struct A; struct Hidden; pub(crate) fn hidden() {} pub fn b() {}
                 mod c; pub use c::{D, e::F as G}; pub(crate) use c::H; use c::I;
                 pub use tokio::sync::*; #[cfg(test)] pub use c::J;",
            ),
            (
                "c.rs",
                "#[macro_export] macro_rules! k { () => {} } macro_rules! l { () => {} }",
            ),
        ];
        assert_eq!(names_of(&files), "A, D, G, b, k, tokio::sync::*");
    }

    #[test]
    fn all_names_of_a_module_are_names() {
        let files = [
            ("lib.rs", "mod a; pub use a::*;"),
            (
                "a.rs",
                "pub struct B; struct Hidden; pub use crate::c::D; pub use crate::*; mod c;",
            ),
            ("a/c.rs", ""),
        ];
        assert_eq!(names_of(&files), "B, D");
    }

    #[test]
    fn modules_are_counted_apart() {
        let files = [
            (
                "lib.rs",
                "pub mod a; pub(crate) mod b; mod c; pub mod d {} pub use c::e;",
            ),
            ("a.rs", "pub mod deeper {}"),
            ("b.rs", ""),
            ("c.rs", "pub mod e {}"),
        ];
        assert_eq!(
            super::modules(&code_of(&files)),
            (2, vec!["a, d".to_owned()])
        );
        assert_eq!(names_of(&files), "e");
    }

    #[test]
    fn a_program_publishes_nothing() {
        let files = [
            ("main.rs", "mod a; struct A; fn main() {}"),
            ("a.rs", "pub fn f() {}"),
        ];
        assert_eq!(names_of(&files), "");
    }
}
