//! What a person is shown before an action: the whole of it, with everything hidden made visible.

use similar::TextDiff;

use crate::action::Action;
use crate::escape;
use crate::executor::Executor;
use crate::gate::Question;

/// For the comparison of two texts.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);
/// Lines around a change.
const CONTEXT: usize = 3;

/// The question about an action.
pub(crate) fn about(action: &Action, executor: &Executor) -> Question {
    let (summary, detail, scope) = match action {
        Action::Write { path, content, before } => {
            let verb = if before.is_some() { "write" } else { "make" };
            let old = before.as_ref().map(|before| before.content.as_deref());
            (format!("{verb} {path} ({})", counted(content.len(), "byte")), difference(old, content), "this file")
        }
        Action::Edit { path, edited, .. } => {
            let old = edited.before.as_ref().map(|before| before.content.as_deref());
            (
                format!("edit {path} ({})", counted(edited.places, "replacement")),
                difference(old, &edited.content),
                "this file",
            )
        }
        Action::Run { command, timeout, directory, read_only, background } => {
            let place = if directory.is_workspace() { String::new() } else { format!(" in {directory}") };
            let kind = if *read_only { " that can only read" } else { "" };
            let background_text = if *background { " in the background" } else { "" };
            let end = match timeout {
                Some(timeout) => format!("at most {} s", timeout.as_secs()),
                None => "until the session ends".into(),
            };
            let bytes = counted(command.len(), "byte");
            let summary = format!("run a command{kind}{background_text}{place}, {bytes}, {end}");
            (
                summary,
                escape::line(command),
                if *background { "this command in the background" } else { "this command" },
            )
        }
        Action::Read { path, .. } => (format!("read {path}"), String::new(), "nothing more"),
        Action::List { path, .. } => (format!("list {path}"), String::new(), "nothing more"),
        Action::JobOutput { job } => (format!("show the output of job {job}"), String::new(), "nothing more"),
        Action::JobStop { job } => (format!("stop job {job}"), String::new(), "nothing more"),
        Action::Custom { name, arguments, .. } => {
            (format!("use the tool {name}"), escape::line(&arguments.to_string()), "nothing more")
        }
        Action::Time => ("tell the time".into(), String::new(), "nothing more"),
    };
    Question {
        tool: action.tool(),
        summary,
        detail,
        scope: scope.into(),
        walls: format!("{} · {}", executor.backend(), executor.enforcement()),
    }
}

/// `1 replacement`, `2 replacements`.
pub(crate) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A unified diff. `old` is `None` for a new file, `Some(None)` for one that is too large to show.
fn difference(old: Option<Option<&[u8]>>, new: &str) -> String {
    let old = match old {
        None => String::new(),
        Some(None) => {
            return format!("(the present file is too large to compare)\n{}", prefixed("+", new));
        }
        Some(Some(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return format!("(the present file is not text)\n{}", prefixed("+", new)),
        },
    };
    if old == new {
        return "(no change)\n".into();
    }
    // A diff of hostile texts takes quadratic time; past the limit it is coarser, and still whole.
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old.as_str(), new);
    escape::block(&diff.unified_diff().context_radius(CONTEXT).to_string())
}

fn prefixed(sign: &str, text: &str) -> String {
    text.lines().map(|line| format!("{sign}{}\n", escape::line(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences() {
        insta::assert_snapshot!(
            [
                difference(None, "new\n"),
                difference(Some(Some(b"a\nb\nc\n")), "a\nB\nc\n"),
                difference(Some(Some(b"a\nb")), "a\nb\n"),
                difference(Some(Some(b"a\n")), "a\r\n\x1b[31m\u{202e}\n"),
                difference(Some(Some(b"same\n")), "same\n"),
                difference(Some(Some(b"\xff\n")), "text\n"),
                difference(Some(None), "text\n"),
            ]
            .join("----\n")
        );
    }
}
