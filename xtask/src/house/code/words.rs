//! What tokens name: paths, `use` declarations, and methods of `self`.
//!
//! Tokens and not expressions, because what stands in a macro is read as well.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::ItemUse;

/// What an item names.
#[derive(Default)]
pub(in super::super) struct Words {
    /// Paths, word by word. One of a single word is a type, a constant, or what is called: a
    /// variable must not be taken for an item of its name.
    pub(in super::super) paths: Vec<Vec<String>>,
    /// The `use` declarations in it.
    pub(in super::super) uses: Vec<ItemUse>,
}

/// Collects what these tokens name.
pub(in super::super) fn words(tokens: TokenStream) -> Words {
    let mut words = Words::default();
    words.add(tokens);
    words
}

/// The names of what is called on `self`, and of what is named behind `Self::`.
pub(in super::super) fn own_calls(tokens: TokenStream) -> Vec<String> {
    let mut names = Vec::new();
    add_own_calls(tokens, &mut names);
    names
}

impl Words {
    fn add(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => {
                    self.add(group.stream());
                    at += 1;
                }
                // A lifetime or a label.
                TokenTree::Punct(mark) if mark.as_char() == '\'' => at += 2,
                // With `<` it says which lifetimes an opaque type captures.
                TokenTree::Ident(word) if word == "use" && !is(&tokens, at + 1, '<') => {
                    at = self.add_use(&tokens, at);
                }
                TokenTree::Ident(word) => at = self.add_path(&tokens, at, word),
                _ => at += 1,
            }
        }
    }

    /// Adds the declaration at `start`. Where the next token is.
    fn add_use(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let is_end = |at: &usize| is(tokens, *at, ';');
        let end = (start..tokens.len()).find(is_end);
        let end = end.map_or(tokens.len(), |end| end + 1);
        let declaration = tokens[start..end].iter().cloned().collect();
        self.uses.extend(syn::parse2::<ItemUse>(declaration));
        end
    }

    /// Adds the path at `start`, if it is one. Where the next token is.
    fn add_path(&mut self, tokens: &[TokenTree], start: usize, first: &Ident) -> usize {
        let mut path = vec![plain(first)];
        let mut end = start + 1;
        while let Some(word) = behind_colons(tokens, end) {
            path.push(plain(word));
            end += 3;
        }
        if first == "pub" {
            return end + usize::from(restricts(tokens.get(end)));
        }
        if begins(tokens, start) && (path.len() > 1 || is_item(tokens, end, &path[0])) {
            self.paths.push(path);
        }
        end
    }
}

fn add_own_calls(tokens: TokenStream, names: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => add_own_calls(group.stream(), names),
            TokenTree::Ident(word) if word == "self" && is(&tokens, at + 1, '.') => {
                let called = is_parenthesis(tokens.get(at + 3)) || are_colons(&tokens, at + 3);
                if let Some(TokenTree::Ident(name)) = tokens.get(at + 2)
                    && called
                {
                    names.push(plain(name));
                }
            }
            TokenTree::Ident(word) if word == "Self" => {
                names.extend(behind_colons(&tokens, at + 1).map(plain));
            }
            _ => {}
        }
    }
}

/// Whether a path may begin here: not with a field, a method, a name that is declared, or the rest
/// of a path.
fn begins(tokens: &[TokenTree], start: usize) -> bool {
    let Some(before) = start.checked_sub(1) else {
        return true;
    };
    let second = before.checked_sub(1);
    let follows_two = |mark| second.is_some_and(|second| is(tokens, second, mark));
    match &tokens[before] {
        TokenTree::Punct(mark) => match mark.as_char() {
            // A range may begin with a path.
            '.' => follows_two('.'),
            ':' => !follows_two(':'),
            // A variable of a macro. `$crate` is none.
            '$' => matches!(&tokens[start], TokenTree::Ident(word) if word == "crate"),
            _ => true,
        },
        TokenTree::Ident(word) => word != "fn",
        _ => true,
    }
}

/// Whether a path of this word alone names an item.
fn is_item(tokens: &[TokenTree], end: usize, word: &str) -> bool {
    let is_macro = is(tokens, end, '!') && !is(tokens, end + 1, '=');
    word.starts_with(char::is_uppercase) || is_parenthesis(tokens.get(end)) || is_macro
}

/// Whether this stands behind `pub` and says for whom.
fn restricts(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else {
        return false;
    };
    let first = group.stream().into_iter().next();
    let words = ["crate", "super", "self", "in"];
    matches!(first, Some(TokenTree::Ident(word)) if words.iter().any(|other| word == other))
}

fn behind_colons(tokens: &[TokenTree], at: usize) -> Option<&Ident> {
    match tokens.get(at + 2) {
        Some(TokenTree::Ident(word)) if are_colons(tokens, at) => Some(word),
        _ => None,
    }
}

fn are_colons(tokens: &[TokenTree], at: usize) -> bool {
    is(tokens, at, ':') && is(tokens, at + 1, ':')
}

fn is(tokens: &[TokenTree], at: usize, mark: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

fn is_parenthesis(token: Option<&TokenTree>) -> bool {
    let parenthesis = Delimiter::Parenthesis;
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == parenthesis)
}

fn plain(word: &Ident) -> String {
    let word = word.to_string();
    word.strip_prefix("r#").map_or(word.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let words = words(text.parse().unwrap());
        words.paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn paths_are_found_wherever_they_stand() {
        let text = "
            fn f<'a, T: crate::a::B>(x: &'a super::C) -> Vec<self::d::E> {
                let y = g::h(x.i.j(), 1..k::L) + M;
                if y != n { tokio::select! { o = p::q() => Some::<r::S>(o) } }
                t(u);
                v![w];
            }";
        let expected = [
            "crate::a::B",
            "super::C",
            "Vec",
            "self::d::E",
            "g::h",
            "k::L",
            "M",
            "tokio::select",
            "p::q",
            "Some",
            "r::S",
            "t",
            "v",
        ];
        let found: Vec<_> = paths(text).into_iter().filter(|path| path != "T").collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_path_is_not_found() {
        assert_eq!(paths("x.call(); 'label: loop {}"), [""; 0]);
        assert_eq!(paths("fn declared() {}"), [""; 0]);
        assert_eq!(
            paths("pub(in crate::a) struct b; pub(super) mod c {}"),
            [""; 0]
        );
        assert_eq!(paths("::std::mem::drop(x)"), [""; 0]);
        assert_eq!(paths("$name::new(); $crate::a::B"), ["crate::a::B"]);
        assert_eq!(paths("struct a(pub (B, C));"), ["a", "B", "C"]);
        assert_eq!(paths("r#try::A"), ["try::A"]);
    }

    #[test]
    fn declarations_in_functions_are_found() {
        let found = words(
            "{ use a::{b, c as d}; f(); } fn g() -> impl H + use<'a> {}"
                .parse()
                .unwrap(),
        );
        assert_eq!(found.uses.len(), 1);
        assert_eq!(found.paths, [["f"], ["H"]]);
    }

    #[test]
    fn own_calls_are_those_of_self() {
        let text = "
            self.a();
            self.b::<u8>();
            self.c.d();
            other.e();
            ready!(self.f(|| Self::g(h())));
            iter.map(Self::i);
            self.field = 1;";
        assert_eq!(own_calls(text.parse().unwrap()), ["a", "b", "f", "g", "i"]);
    }
}
