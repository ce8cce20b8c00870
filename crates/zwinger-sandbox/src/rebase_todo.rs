//! What a rebase in progress is still to do (`.git/rebase-merge/git-rebase-todo`), as far as it takes to say that it runs nothing.

/// What git does by itself (git-rebase(1), "Interactive mode"), with the short forms. `exec` is what is left out.
const OF_GIT: [&[u8]; 25] = [
    b"pick",
    b"p",
    b"revert",
    b"edit",
    b"e",
    b"reword",
    b"r",
    b"fixup",
    b"f",
    b"squash",
    b"s",
    b"label",
    b"l",
    b"reset",
    b"t",
    b"merge",
    b"m",
    b"update-ref",
    b"u",
    b"drop",
    b"d",
    b"break",
    b"b",
    b"noop",
    b"",
];

/// The lines that run something, or that are unknown here, in their order.
pub(crate) fn commands(text: &[u8]) -> Vec<&[u8]> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !runs_nothing(line)).collect()
}

fn runs_nothing(line: &[u8]) -> bool {
    let word = line.split(|byte| byte.is_ascii_whitespace() || *byte == 0).next().unwrap_or_default();
    // A comment, whatever core.commentChar is: no command begins so.
    OF_GIT.contains(&word) || word.first().is_some_and(|first| first.is_ascii_punctuation())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b05_only_what_git_does_by_itself_runs_nothing() {
        let harmless = "pick 1234567 exec\n\nfixup -C 12 # x\r\n# exec x\n;x\n  label onto\nmerge -C 12 side # x\nupdate-ref refs/heads/x\nnoop";
        assert!(commands(harmless.as_bytes()).is_empty());
        for run in ["exec ./x", "x ./x", "\t exec\t./x", "exec", "x\r", "x\0./x", "Exec x", "unheard-of x"] {
            let text = format!("{harmless}\n{run}\n{harmless}\n");
            assert_eq!(commands(text.as_bytes()), [run.trim_ascii().as_bytes()], "{run}");
        }
    }
}
