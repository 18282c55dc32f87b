//! What of a file is the product, and what is there for tests alone.

use std::mem;
use std::ops::Range;

use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Expr, ImplItem, Item, Meta, Stmt, Token, TraitItem};

/// What no build for a user has set: tests, and the schedule explorer.
const NEVER_SET: [&str; 2] = ["test", "keylane_shuttle"];

/// Takes the tests out of `file`. Where they are in `text`, in bytes.
pub(super) fn take_tests(file: &mut syn::File, text: &str) -> Vec<Range<usize>> {
    if is_test(&file.attrs) {
        file.items.clear();
        let all = 0..text.len();
        return vec![all];
    }
    let mut tests = Tests::default();
    tests.visit_file_mut(file);
    tests.places
}

/// Whether what has these attributes is there for tests alone.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("cfg") {
            attribute
                .parse_args::<Meta>()
                .is_ok_and(|condition| holds(&condition) == Some(false))
        } else {
            let last = path.segments.last();
            last.is_some_and(|last| last.ident == "test")
        }
    })
}

/// Whether a condition holds in a build for a user. Nothing if that depends on the build.
fn holds(condition: &Meta) -> Option<bool> {
    match condition {
        Meta::Path(name) => NEVER_SET
            .iter()
            .any(|never| name.is_ident(never))
            .then_some(false),
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let parts: Vec<_> = parts.ok()?.iter().map(holds).collect();
            if list.path.is_ident("not") {
                parts.first()?.map(|holds| !holds)
            } else if list.path.is_ident("all") {
                decided_by(false, &parts)
            } else if list.path.is_ident("any") {
                decided_by(true, &parts)
            } else {
                None
            }
        }
        Meta::NameValue(_) => None,
    }
}

/// One part of this value decides; without it, all parts must have the other one.
fn decided_by(value: bool, parts: &[Option<bool>]) -> Option<bool> {
    if parts.contains(&Some(value)) {
        return Some(value);
    }
    let all_known = parts.iter().all(Option::is_some);
    all_known.then_some(!value)
}

#[derive(Default)]
struct Tests {
    places: Vec<Range<usize>>,
}

impl Tests {
    fn take<T: ToTokens>(&mut self, nodes: &mut Vec<T>, attributes: fn(&T) -> &[Attribute]) {
        nodes.retain(|node| self.stays(node, attributes(node)));
    }

    fn take_listed<T: ToTokens>(
        &mut self,
        nodes: &mut Punctuated<T, Token![,]>,
        attributes: fn(&T) -> &[Attribute],
    ) {
        let pairs = mem::take(nodes).into_pairs();
        let staying = pairs.filter(|pair| self.stays(pair.value(), attributes(pair.value())));
        *nodes = staying.collect();
    }

    fn stays(&mut self, node: &impl ToTokens, attributes: &[Attribute]) -> bool {
        let is_test = is_test(attributes);
        if is_test {
            self.places.extend(place(node));
        }
        !is_test
    }
}

impl VisitMut for Tests {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        self.take(&mut file.items, of_item);
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            self.take(items, of_item);
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        self.take(&mut block.items, of_impl_item);
        visit_mut::visit_item_impl_mut(self, block);
    }

    fn visit_item_trait_mut(&mut self, item: &mut syn::ItemTrait) {
        self.take(&mut item.items, of_trait_item);
        visit_mut::visit_item_trait_mut(self, item);
    }

    fn visit_item_enum_mut(&mut self, item: &mut syn::ItemEnum) {
        self.take_listed(&mut item.variants, |variant| &variant.attrs);
        visit_mut::visit_item_enum_mut(self, item);
    }

    fn visit_fields_named_mut(&mut self, fields: &mut syn::FieldsNamed) {
        self.take_listed(&mut fields.named, |field| &field.attrs);
        visit_mut::visit_fields_named_mut(self, fields);
    }

    fn visit_fields_unnamed_mut(&mut self, fields: &mut syn::FieldsUnnamed) {
        self.take_listed(&mut fields.unnamed, |field| &field.attrs);
        visit_mut::visit_fields_unnamed_mut(self, fields);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        self.take(&mut block.stmts, of_statement);
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_expr_match_mut(&mut self, expression: &mut syn::ExprMatch) {
        self.take(&mut expression.arms, |arm| &arm.attrs);
        visit_mut::visit_expr_match_mut(self, expression);
    }

    fn visit_expr_struct_mut(&mut self, expression: &mut syn::ExprStruct) {
        self.take_listed(&mut expression.fields, |field| &field.attrs);
        visit_mut::visit_expr_struct_mut(self, expression);
    }
}

/// Where this is in the text.
fn place(node: &impl ToTokens) -> Option<Range<usize>> {
    let tokens = node.to_token_stream().into_iter();
    // One that the parser has added is nowhere.
    let places = tokens.map(|token| token.span().byte_range());
    places
        .filter(|place| !place.is_empty())
        .reduce(|all, place| all.start.min(place.start)..all.end.max(place.end))
}

fn of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn of_impl_item(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

fn of_trait_item(item: &TraitItem) -> &[Attribute] {
    match item {
        TraitItem::Const(item) => &item.attrs,
        TraitItem::Fn(item) => &item.attrs,
        TraitItem::Type(item) => &item.attrs,
        TraitItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

fn of_statement(statement: &Stmt) -> &[Attribute] {
    match statement {
        Stmt::Local(local) => &local.attrs,
        Stmt::Item(item) => of_item(item),
        Stmt::Macro(call) => &call.attrs,
        Stmt::Expr(expression, _) => of_expression(expression),
    }
}

/// Those of the expressions that are statements.
fn of_expression(expression: &Expr) -> &[Attribute] {
    match expression {
        Expr::Assign(expression) => &expression.attrs,
        Expr::Await(expression) => &expression.attrs,
        Expr::Block(expression) => &expression.attrs,
        Expr::Call(expression) => &expression.attrs,
        Expr::ForLoop(expression) => &expression.attrs,
        Expr::If(expression) => &expression.attrs,
        Expr::Loop(expression) => &expression.attrs,
        Expr::Macro(expression) => &expression.attrs,
        Expr::Match(expression) => &expression.attrs,
        Expr::MethodCall(expression) => &expression.attrs,
        Expr::Return(expression) => &expression.attrs,
        Expr::While(expression) => &expression.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of the places at which tests are, and what is left of the code.
    fn taken(text: &str) -> (Vec<&str>, String) {
        let mut file = syn::parse_file(text).unwrap();
        let places = take_tests(&mut file, text);
        let texts = places.into_iter().map(|place| &text[place]);
        (texts.collect(), file.to_token_stream().to_string())
    }

    #[test]
    fn what_only_tests_have_is_a_test() {
        let conditions = [
            ("test", true),
            ("keylane_shuttle", true),
            ("all(test, not(keylane_shuttle))", true),
            ("all(test, feature = \"spool\")", true),
            ("any(test, keylane_shuttle)", true),
            ("not(not(test))", true),
            ("not(test)", false),
            ("not(keylane_shuttle)", false),
            ("any(test, feature = \"spool\")", false),
            ("all(unix, not(keylane_shuttle))", false),
            ("feature = \"test\"", false),
            ("unix", false),
        ];
        for (condition, expected) in conditions {
            let text = format!("#[cfg({condition})] mod a;");
            assert_eq!(taken(&text).1.is_empty(), expected, "{condition}");
        }
        for attribute in ["#[test]", "#[tokio::test(start_paused = true)]"] {
            let text = format!("{attribute} fn a() {{}}");
            assert!(taken(&text).1.is_empty(), "{attribute}");
        }
        assert!(!taken("#![cfg(test)] fn a() {}").1.contains("fn"));
    }

    #[test]
    fn tests_are_taken_out_wherever_they_stand() {
        let text = "
            mod inner { #[cfg(test)] fn in_module() {} }
            impl A { #[cfg(test)] fn in_impl() {} fn stays() {} }
            trait B { #[cfg(test)] fn in_trait() {} }
            enum C { #[cfg(test)] Variant, D }
            struct E { #[cfg(test)] field: u8, }
            struct F(#[cfg(test)] u8);
            fn g() {
                #[cfg(test)] let local = 1;
                #[cfg(test)] called();
                #[cfg(test)] if asked {}
                #[cfg(test)] printed!();
                match x { #[cfg(test)] Arm => 1, Other => 2 }
                H { #[cfg(test)] value: 1, other: 2 }
            }";
        let (places, left) = taken(text);
        let words = [
            "in_module",
            "in_impl",
            "in_trait",
            "Variant",
            "field",
            "u8)",
            "local",
            "called",
            "asked",
            "printed",
            "Arm",
            "value",
        ];
        assert_eq!(places.len(), words.len());
        for word in words {
            assert!(!left.contains(word), "{word} is left: {left}");
        }
        assert!(left.contains("stays") && left.contains("other"));
    }

    #[test]
    fn a_place_begins_with_the_comment() {
        let text = "struct A {\n    /// Why.\n    #[cfg(test)]\n    b: u8,\n    c: u8,\n}";
        let (places, _) = taken(text);
        assert_eq!(places, ["/// Why.\n    #[cfg(test)]\n    b: u8"]);
    }
}
