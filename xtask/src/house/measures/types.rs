//! The types of a crate with their fields and `impl` blocks, and the largest of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use syn::{ImplItem, ImplItemFn, Item, ItemImpl, Type};

use crate::house::code::{Crate, Names, Target};
use crate::house::measure::Value;

/// How many of the largest are shown.
const SHOWN: usize = 3;

/// A type of the crate, or one of another crate that has an `impl` block here.
pub(super) struct Definition<'a> {
    /// The module that defines it, and its name.
    pub(super) id: Id,
    pub(super) fields: usize,
    pub(super) blocks: Vec<Block<'a>>,
}

pub(super) type Id = (usize, String);

pub(super) struct Block<'a> {
    pub(super) module: usize,
    /// Whether it is of the type itself, and of no trait.
    pub(super) is_inherent: bool,
    pub(super) methods: Vec<&'a ImplItemFn>,
}

impl Definition<'_> {
    fn inherent(&self) -> impl Iterator<Item = &Block<'_>> {
        self.blocks.iter().filter(|block| block.is_inherent)
    }

    fn methods(&self) -> usize {
        self.inherent().map(|block| block.methods.len()).sum()
    }

    fn described(&self, code: &Crate) -> String {
        let files = self.inherent().map(|block| code.modules[block.module].file);
        let files: BTreeSet<usize> = files.collect();
        format!(
            "{} ({}): {} fields, {} methods in {} blocks over {} files",
            self.id.1,
            code.path_of(self.id.0),
            self.fields,
            self.methods(),
            self.inherent().count(),
            files.len(),
        )
    }
}

/// The types that have fields or `impl` blocks.
pub(super) fn types<'a>(code: &'a Crate, names: &Names) -> Vec<Definition<'a>> {
    let mut types = BTreeMap::new();
    for (number, module) in code.modules.iter().enumerate() {
        for item in &module.items {
            match item {
                Item::Struct(item) => {
                    let id = (number, item.ident.to_string());
                    definition(&mut types, id).fields = item.fields.len();
                }
                Item::Impl(block) => {
                    if let Some(id) = id(block, number, names) {
                        let definition = definition(&mut types, id);
                        definition.blocks.push(self::block(block, number));
                    }
                }
                _ => {}
            }
        }
    }
    types.into_values().collect()
}

/// The methods of the type that has most, in the `impl` blocks that are of no trait.
pub(super) fn methods(code: &Crate, types: &[Definition]) -> Value {
    largest(code, types, |definition| definition.methods())
}

/// The fields of the type that has most.
pub(super) fn fields(code: &Crate, types: &[Definition]) -> Value {
    largest(code, types, |definition| definition.fields)
}

fn largest(code: &Crate, types: &[Definition], size: fn(&Definition) -> usize) -> Value {
    let mut types: Vec<&Definition> = types.iter().collect();
    types.sort_by_key(|definition| Reverse(size(definition)));
    let value = types.first().map_or(0, |definition| size(definition));
    let shown = types.iter().take(SHOWN);
    (
        value,
        shown.map(|definition| definition.described(code)).collect(),
    )
}

fn definition<'a, 'b>(
    types: &'b mut BTreeMap<Id, Definition<'a>>,
    id: Id,
) -> &'b mut Definition<'a> {
    types.entry(id.clone()).or_insert(Definition {
        id,
        fields: 0,
        blocks: Vec::new(),
    })
}

/// The type that a block is of. Nothing for a reference, a slice and so on.
fn id(block: &ItemImpl, module: usize, names: &Names) -> Option<Id> {
    let Type::Path(path) = &*block.self_ty else {
        return None;
    };
    let words = path.path.segments.iter().map(|word| word.ident.to_string());
    let words: Vec<String> = words.collect();
    match names.find(module, &words) {
        Some(Target::Item { module, name, .. }) => Some((module, name)),
        _ => Some((module, words.last()?.clone())),
    }
}

fn block(block: &ItemImpl, module: usize) -> Block<'_> {
    let methods = block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(method) => Some(method),
        _ => None,
    });
    Block {
        module,
        is_inherent: block.trait_.is_none(),
        methods: methods.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::code::code_of;

    fn measured(files: &[(&str, &str)]) -> (Value, Value) {
        let code = code_of(files);
        let types = types(&code, &Names::of(&code));
        (methods(&code, &types), fields(&code, &types))
    }

    #[test]
    fn the_blocks_of_a_type_are_found_in_all_files() {
        let files = [
            (
                "lib.rs",
                "mod engine; mod other; pub use engine::Engine as Renamed;",
            ),
            (
                "engine.rs",
                "mod apply; pub struct Engine<T> { a: T, #[cfg(test)] b: T }
                 impl<T> Engine<T> { fn new() {} #[cfg(test)] fn test() {} }
                 impl<T> Drop for Engine<T> { fn drop(&mut self) {} }",
            ),
            (
                "engine/apply.rs",
                "use super::*; impl<T> Engine<T> { fn apply(&self) {} }",
            ),
            (
                "other.rs",
                "pub struct Pair(u8, u8);
                 impl crate::Renamed<u8> { fn a(&self) {} fn b(&self) {} }",
            ),
        ];
        let (methods, fields) = measured(&files);
        assert_eq!(methods.0, 4);
        let engine = "Engine (engine.rs): 1 fields, 4 methods in 3 blocks over 3 files";
        assert_eq!(methods.1[0], engine);
        assert_eq!(fields.0, 2);
        assert!(fields.1[0].starts_with("Pair (other.rs): 2 fields"));
    }

    #[test]
    fn types_of_one_name_are_two() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "struct Lease; impl Lease { fn a() {} }"),
            (
                "b.rs",
                "struct Lease; impl Lease { fn a() {} } impl super::a::Lease { fn b() {} }",
            ),
        ];
        let (methods, _) = measured(&files);
        assert_eq!(methods.0, 2);
        assert!(methods.1[0].starts_with("Lease (a.rs)"));
        assert_eq!(methods.1.len(), 2);
    }

    #[test]
    fn what_a_macro_declares_is_read() {
        let files = [(
            "lib.rs",
            "pin_project! { struct A { #[pin] b: u8, c: u8 } }",
        )];
        assert_eq!(measured(&files).1.0, 2);
        assert_eq!(measured(&[]).0, (0, Vec::new()));
    }
}
