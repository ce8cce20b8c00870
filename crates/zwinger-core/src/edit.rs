//! Text of a file replaced by other text: exactly one place, unless all are asked for.

use similar::{ChangeTag, TextDiff};

/// For counting the lines of a difference.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);

/// What is to be replaced by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The text that is there; not empty.
    pub old: String,
    /// What stands there afterwards.
    pub new: String,
    /// Every place, not exactly one.
    pub all: bool,
}

/// Why an edit changes nothing, for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditError {
    #[error("does not contain old_text; read it again and copy the text as it is there. Nothing was changed.")]
    NotThere,
    #[error(
        "contains old_text {0} times; give more of the text around the one place, or replace_all. Nothing was changed."
    )]
    Several(usize),
}

impl Edit {
    /// The text with the edit, and the number of places. A file whose lines all end in CRLF keeps that, whichever ending the edit has.
    pub(crate) fn apply(&self, text: &str) -> Result<(String, usize), EditError> {
        let ending = |text: &str| match ends_in_crlf(text) {
            true => |edit: &str| edit.replace("\r\n", "\n").replace('\n', "\r\n"),
            false => str::to_owned,
        };
        let (old, new) = (ending(text)(&self.old), ending(text)(&self.new));
        match text.matches(&old).count() {
            0 => Err(EditError::NotThere),
            places if places > 1 && !self.all => Err(EditError::Several(places)),
            places => Ok((text.replace(&old, &new), places)),
        }
    }
}

fn ends_in_crlf(text: &str) -> bool {
    let lines = text.matches('\n').count();
    lines > 0 && text.matches("\r\n").count() == lines
}

/// Lines that a change adds and removes.
pub(crate) fn lines(old: &str, new: &str) -> (usize, usize) {
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    (count(ChangeTag::Insert), count(ChangeTag::Delete))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str, all: bool) -> Edit {
        Edit { old: old.into(), new: new.into(), all }
    }

    #[test]
    fn exactly_one_place_unless_all() {
        assert_eq!(edit("b", "x", false).apply("a b c"), Ok(("a x c".into(), 1)));
        assert_eq!(edit("a", "x", false).apply("a a"), Err(EditError::Several(2)));
        assert_eq!(edit("a", "x", true).apply("a a"), Ok(("x x".into(), 2)));
        assert_eq!(edit("z", "x", true).apply("a a"), Err(EditError::NotThere));
    }

    #[test]
    fn line_endings_mark_and_last_line_stay() {
        let file = "\u{feff}one\r\ntwo\r\nthree";
        assert_eq!(edit("one\ntwo", "1\n2", false).apply(file), Ok(("\u{feff}1\r\n2\r\nthree".into(), 1)));
        assert_eq!(edit("two\r\n", "2\r\n", false).apply(file), Ok(("\u{feff}one\r\n2\r\nthree".into(), 1)));
        // Mixed endings are taken as they are.
        assert_eq!(edit("a\nb", "c", false).apply("a\r\nb\n"), Err(EditError::NotThere));
    }

    #[test]
    fn lines_are_counted_as_a_difference_shows_them() {
        assert_eq!(lines("a\nb\nc\n", "a\nB\nB2\nc\n"), (2, 1));
    }
}
