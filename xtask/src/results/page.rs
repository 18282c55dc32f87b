//! The text of a file of raw tables.

/// What a run has printed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Tables in Markdown.
    Markdown(String),
    /// Plain text, whose lines and columns stay as they are.
    Text(String),
}

/// Where the figures come from. A text that is empty could not be found out.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) date: String,
    pub(super) commit: String,
    /// Whether the sources were those of the commit.
    pub(super) is_clean: bool,
    pub(super) rustc: String,
    pub(super) processor: String,
    pub(super) cores: usize,
    /// The command, as it was typed.
    pub(super) command: String,
}

/// The text of the file of `arm`.
pub(super) fn page(arm: &str, origin: &Origin, output: &Output) -> String {
    let changes = match origin.is_clean {
        true => "",
        false => ", and changes that are not committed",
    };
    let body = match output {
        Output::Markdown(tables) => tables.trim_end().to_owned(),
        Output::Text(text) => fenced(text.trim_end()),
    };
    format!(
        "# {arm}\n\n\
         - Date: {date}\n\
         - Commit: {commit}{changes}\n\
         - Compiler: {rustc}\n\
         - Processor: {processor}, cores: {cores}\n\
         - Command: `{command}`\n\n\
         {body}\n",
        date = known(&origin.date),
        commit = known(&origin.commit),
        rustc = known(&origin.rustc),
        processor = known(&origin.processor),
        cores = origin.cores,
        command = origin.command,
    )
}

/// The model of the processor, from the text of `/proc/cpuinfo`. Empty where that has none.
pub(super) fn processor(cpuinfo: &str) -> String {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let model = fields.find(|(name, _)| name.trim() == "model name");
    model.map_or_else(String::new, |(_, model)| model.trim().to_owned())
}

fn known(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

/// A block that no line of `text` can end.
fn fenced(text: &str) -> String {
    let ticks = text.split(|character| character != '`').map(str::len).max();
    let fence = "`".repeat(ticks.unwrap_or(0).max(2) + 1);
    format!("{fence}text\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin {
            date: "2026-11-27".to_owned(),
            commit: "0ab53fe".to_owned(),
            is_clean: true,
            rustc: "rustc 1.95.0".to_owned(),
            processor: "A processor".to_owned(),
            cores: 2,
            command: "cargo xtask versus --sql --save".to_owned(),
        }
    }

    const HEAD: &str = "\
# sql

- Date: 2026-11-27
- Commit: 0ab53fe
- Compiler: rustc 1.95.0
- Processor: A processor, cores: 2
- Command: `cargo xtask versus --sql --save`

";

    #[test]
    fn tables_stay_as_they_are() {
        let tables = Output::Markdown("### Rates\n\n| a |\n| - |\n\n".to_owned());
        let text = page("sql", &origin(), &tables);
        assert_eq!(text, format!("{HEAD}### Rates\n\n| a |\n| - |\n"));
    }

    #[test]
    fn plain_text_is_fenced() {
        let printed = Output::Text("send    1,750\n  submit  2,499\n".to_owned());
        let text = page("sql", &origin(), &printed);
        let block = "```text\nsend    1,750\n  submit  2,499\n```\n";
        assert_eq!(text, format!("{HEAD}{block}"));
    }

    #[test]
    fn a_fence_in_the_text_does_not_end_the_block() {
        assert_eq!(fenced("a\n````\nb"), "`````text\na\n````\nb\n`````");
        assert_eq!(fenced("`a` ``"), "```text\n`a` ``\n```");
        assert_eq!(fenced(""), "```text\n\n```");
    }

    #[test]
    fn changes_and_what_is_unknown_are_named() {
        let origin = Origin {
            is_clean: false,
            rustc: String::new(),
            ..origin()
        };
        let text = page("sql", &origin, &Output::Markdown(String::new()));
        let changes = "- Commit: 0ab53fe, and changes that are not committed\n";
        assert!(text.contains(changes), "{text}");
        assert!(text.contains("- Compiler: unknown\n"), "{text}");
    }

    #[test]
    fn the_processor_has_the_name_of_its_model() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: A processor: 2 GHz\n\
                       processor\t: 1\nmodel name\t: Another one\n";
        assert_eq!(processor(cpuinfo), "A processor: 2 GHz");
        assert_eq!(processor("processor\t: 0\nFeatures\t: fp\n"), "");
    }
}
