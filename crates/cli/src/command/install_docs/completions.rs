//! What each shell completes: the commands and options of the command line's definition, the words of `dd` and of `report --only`, and the
//! segments of a volume. For these the shell runs `baio list` when a `#` is typed.

use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::{Shell, generate};

use super::PROGRAM;
use crate::args::definition;
use crate::operands;

/// Each shell, where it looks below a prefix, and how it wants the file to be called.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/baio"),
    (Shell::Zsh, "share/zsh/site-functions/_baio"),
    (Shell::Fish, "share/fish/vendor_completions.d/baio.fish"),
];

/// The scripts, and where they go.
pub(super) fn scripts() -> impl Iterator<Item = (String, Vec<u8>)> {
    SHELLS.into_iter().map(|(shell, path)| {
        let mut made = Vec::new();
        generate(shell, &mut with_words(definition()), PROGRAM, &mut made);
        let made = String::from_utf8_lossy(&made);
        let operands = operands::completions().collect::<Vec<_>>().join(" ");
        let script = match shell {
            Shell::Bash => made.into_owned() + &include_str!("baio.bash").replace("OPERANDS", &operands),
            Shell::Fish => made.into_owned() + &include_str!("baio.fish").replace("OPERANDS", &operands),
            // The function that the shell loads is ours, and calls the one that was made.
            _ => {
                let renamed = made.replacen("\n_baio() {", "\n_baio_made() {", 1);
                let begins = format!("{}\nif [ \"$funcstack[1]\"", include_str!("baio.zsh"));
                renamed.replacen("if [ \"$funcstack[1]\"", &begins, 1)
            }
        };
        (path.to_owned(), script.into_bytes())
    })
}

/// The definition with words that the parser looks for by itself, and says more about.
fn with_words(definition: Command) -> Command {
    // Words of a definition last as long as the program, which ends when it has written them.
    let operands: Vec<&'static str> = operands::completions().map(|word| &*word.leak()).collect();
    definition
        .mut_subcommand("dd", |dd| {
            dd.mut_arg("operands", |arg| arg.value_parser(PossibleValuesParser::new(operands)))
        })
        .mut_subcommand("report", |report| {
            let names = PossibleValuesParser::new(baio_measure::experiments());
            report.mut_arg("only", |arg| arg.value_parser(names))
        })
}
