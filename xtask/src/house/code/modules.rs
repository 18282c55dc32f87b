//! The modules of a crate, found as the compiler finds them: from the root, along `mod`.

use std::collections::BTreeMap;

use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta};

use super::disk::Package;
use super::file::File;

/// The code of a crate, without tests.
pub(in super::super) struct Crate {
    pub(in super::super) name: String,
    pub(in super::super) files: Vec<File>,
    /// The root of a library or a program comes before what is below it.
    pub(in super::super) modules: Vec<Module>,
}

pub(in super::super) struct Module {
    /// The file it is in, a number in [`Crate::files`].
    pub(in super::super) file: usize,
    /// The module it is declared in, a number in [`Crate::modules`]. A root has none.
    pub(in super::super) parent: Option<usize>,
    pub(in super::super) children: BTreeMap<String, usize>,
    /// Its items. Those of a module inside of this file are in that module.
    pub(in super::super) items: Vec<Item>,
}

impl Crate {
    pub(in super::super) fn parse(package: &Package) -> Result<Self, String> {
        let mut reader = Reader {
            sources: &package.sources,
            code: Crate {
                name: package.name.clone(),
                files: Vec::new(),
                modules: Vec::new(),
            },
        };
        for path in package.sources.keys().filter(|path| is_root(path)) {
            let folder = Folder::beside(path);
            reader
                .file(path, None, folder)
                .map_err(|error| format!("{}/src/{error}", package.name))?;
        }
        Ok(reader.code)
    }

    /// The root above a module.
    pub(in super::super) fn root_of(&self, module: usize) -> usize {
        let mut module = module;
        while let Some(parent) = self.modules[module].parent {
            module = parent;
        }
        module
    }

    /// The path of the file that a module is in.
    pub(in super::super) fn path_of(&self, module: usize) -> &str {
        &self.files[self.modules[module].file].path
    }
}

/// Whether a file is the root of a library or of a program.
fn is_root(path: &str) -> bool {
    match path.strip_prefix("bin/") {
        Some(program) => !program.contains('/') || program.ends_with("/main.rs"),
        None => path == "lib.rs" || path == "main.rs",
    }
}

/// Where the files of modules are that a module declares.
#[derive(Debug, Clone)]
struct Folder {
    /// Of one without a path.
    of_children: String,
    /// Of one with a path.
    of_paths: String,
}

impl Folder {
    /// For a file that has its modules beside it: a root, a `mod.rs`, a file with a `#[path]`.
    fn beside(file: &str) -> Self {
        let folder = parent(file);
        Self {
            of_children: folder.clone(),
            of_paths: folder,
        }
    }

    /// For any other file, which has them in a folder of its name.
    fn below(file: &str) -> Self {
        Self {
            of_children: file.trim_end_matches(".rs").to_owned(),
            of_paths: parent(file),
        }
    }

    /// For a module inside of a file.
    fn inside(&self, module: &str) -> Self {
        let folder = join(&self.of_children, module);
        Self {
            of_children: folder.clone(),
            of_paths: folder,
        }
    }
}

struct Reader<'a> {
    sources: &'a BTreeMap<String, String>,
    code: Crate,
}

impl Reader<'_> {
    /// Reads a file and the modules below it. The number of its module.
    fn file(&mut self, path: &str, parent: Option<usize>, folder: Folder) -> Result<usize, String> {
        let (file, items) = File::parse(path, &self.sources[path])?;
        self.code.files.push(file);
        self.module(self.code.files.len() - 1, parent, items, &folder)
    }

    fn module(
        &mut self,
        file: usize,
        parent: Option<usize>,
        items: Vec<Item>,
        folder: &Folder,
    ) -> Result<usize, String> {
        let number = self.code.modules.len();
        self.code.modules.push(Module {
            file,
            parent,
            children: BTreeMap::new(),
            items: Vec::new(),
        });
        for mut item in items {
            if let Item::Mod(child) = &mut item {
                let name = child.ident.to_string();
                let name = name.trim_start_matches("r#");
                let declared = match child.content.take() {
                    Some((_, items)) => {
                        let folder = folder.inside(name);
                        Some(self.module(file, Some(number), items, &folder)?)
                    }
                    None => self.declared(child, name, number, folder)?,
                };
                if let Some(declared) = declared {
                    let children = &mut self.code.modules[number].children;
                    children.insert(name.to_owned(), declared);
                }
            }
            self.code.modules[number].items.push(item);
        }
        Ok(number)
    }

    /// Reads the file of a module that is declared in module `parent`. One outside of `src` is not
    /// measured.
    fn declared(
        &mut self,
        module: &ItemMod,
        name: &str,
        parent: usize,
        folder: &Folder,
    ) -> Result<Option<usize>, String> {
        let (path, folder) = match path_attribute(&module.attrs) {
            Some(path) => {
                let path = join(&folder.of_paths, &path);
                if path.starts_with("..") {
                    return Ok(None);
                }
                let folder = Folder::beside(&path);
                (path, folder)
            }
            None => {
                let file = join(&folder.of_children, &format!("{name}.rs"));
                let nested = join(&folder.of_children, &format!("{name}/mod.rs"));
                if self.sources.contains_key(&nested) {
                    let folder = Folder::beside(&nested);
                    (nested, folder)
                } else {
                    let folder = Folder::below(&file);
                    (file, folder)
                }
            }
        };
        if !self.sources.contains_key(&path) {
            let declaring = self.code.path_of(parent);
            return Err(format!("{declaring}: no file for `mod {name}`: {path}"));
        }
        self.file(&path, Some(parent), folder).map(Some)
    }
}

/// The value of `#[path = "…"]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(text),
                    ..
                }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        })
}

fn parent(path: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    folder.to_owned()
}

/// A path seen from a folder, without `.` and, where it can be, without `..`.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
pub(in super::super) mod tests {
    use super::*;

    /// A crate of these files.
    pub(in super::super::super) fn code_of(files: &[(&str, &str)]) -> Crate {
        Crate::parse(&package(files)).unwrap()
    }

    fn package(files: &[(&str, &str)]) -> Package {
        let sources = files
            .iter()
            .map(|(path, text)| (path.to_string(), text.to_string()));
        Package {
            name: "some".to_owned(),
            sources: sources.collect(),
        }
    }

    fn paths(files: &[(&str, &str)]) -> Vec<String> {
        let code = code_of(files);
        code.files.into_iter().map(|file| file.path).collect()
    }

    #[test]
    fn modules_are_found_along_their_declarations() {
        let files = [
            (
                "lib.rs",
                "mod a; pub mod b; mod r#try; mod inner { mod c; }",
            ),
            ("a.rs", "mod d;"),
            ("a/d.rs", ""),
            ("b/mod.rs", "mod e;"),
            ("b/e.rs", ""),
            ("try.rs", ""),
            ("inner/c.rs", ""),
            ("nobody.rs", ""),
        ];
        let expected = [
            "lib.rs",
            "a.rs",
            "a/d.rs",
            "b/mod.rs",
            "b/e.rs",
            "try.rs",
            "inner/c.rs",
        ];
        assert_eq!(paths(&files), expected);
        let code = code_of(&files);
        let root = &code.modules[0];
        let names: Vec<&str> = root.children.keys().map(String::as_str).collect();
        assert_eq!(names, ["a", "b", "inner", "try"]);
        let inner = &code.modules[root.children["inner"]];
        assert_eq!((inner.file, inner.parent), (0, Some(0)));
        assert_eq!(code.root_of(inner.children["c"]), 0);
    }

    #[test]
    fn a_path_says_where_a_module_is() {
        let files = [
            ("lib.rs", "mod a;"),
            (
                "a.rs",
                "#[path = \"x/y.rs\"] mod b; mod i { #[path = \"z.rs\"] mod c; }",
            ),
            (
                "x/y.rs",
                "mod d; #[path = \"../w.rs\"] mod e; #[path = \"../../out.rs\"] mod f;",
            ),
            ("x/d.rs", ""),
            ("w.rs", ""),
            ("a/i/z.rs", ""),
        ];
        let expected = ["lib.rs", "a.rs", "x/y.rs", "x/d.rs", "w.rs", "a/i/z.rs"];
        assert_eq!(paths(&files), expected);
    }

    #[test]
    fn files_of_tests_are_not_read() {
        let files = [
            (
                "lib.rs",
                "#[cfg(all(test, keylane_shuttle))] mod schedules; mod a;",
            ),
            ("schedules.rs", "this is no Rust, and mod below;"),
            ("a.rs", "#[cfg(test)] mod tests;"),
            ("a/tests.rs", "mod below;"),
        ];
        assert_eq!(paths(&files), ["lib.rs", "a.rs"]);
    }

    #[test]
    fn programs_have_roots_of_their_own() {
        let files = [
            ("lib.rs", ""),
            ("main.rs", "mod a;"),
            ("a.rs", ""),
            ("bin/b.rs", ""),
            ("bin/c/main.rs", "mod d;"),
            ("bin/c/d.rs", ""),
        ];
        let code = code_of(&files);
        let roots = code.modules.iter().filter(|module| module.parent.is_none());
        assert_eq!(roots.count(), 4);
        assert_eq!(code.files.len(), 6);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = |files: &[(&str, &str)]| Crate::parse(&package(files)).err().unwrap();
        assert_eq!(
            error(&[("lib.rs", "mod a;"), ("a.rs", "mod b;")]),
            "some/src/a.rs: no file for `mod b`: a/b.rs"
        );
        let wrong = error(&[("lib.rs", "mod a;"), ("a.rs", "fn")]);
        assert!(wrong.starts_with("some/src/a.rs, line 1: "), "{wrong}");
    }
}
