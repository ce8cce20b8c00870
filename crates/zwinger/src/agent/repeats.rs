//! Notices a model that tries the same failing call over and over.

use serde_json::Value;

use super::turn::Call;

/// Failures of one call in a row, after which it is not run again.
const RUNS: u32 = 3;
/// Times that this is said before the loop gives up.
const WARNINGS: u32 = 2;

/// The answer to a call that is not run again.
pub(super) const ADVICE: &str = "Error: not run: this very call has failed 3 times in a row. Do something else, or tell the person what stands in the way.";

/// How a call relates to those just before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// To be run.
    New,
    /// Has failed often enough; to be answered with [`ADVICE`].
    Again,
    /// Was answered so often enough.
    TooOften,
}

/// The last call, as long as it keeps failing. Any other call in between starts the count anew.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    last: Option<(String, Result<Value, String>)>,
    failed: u32,
    warned: u32,
}

impl Repeats {
    /// To be asked once before a call is run.
    pub(super) fn see(&mut self, call: &Call) -> Seen {
        if self.last.as_ref() != Some(&call.identity()) || self.failed < RUNS {
            return Seen::New;
        }
        self.warned += 1;
        if self.warned > WARNINGS { Seen::TooOften } else { Seen::Again }
    }

    /// To be told what came of a call that was run.
    pub(super) fn record(&mut self, call: &Call, success: bool) {
        let this = Some(call.identity());
        if success || self.last != this {
            *self = Self::default();
        }
        if !success {
            self.last = this;
            self.failed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, path: &str) -> Call {
        let arguments = Ok(json!({"path": path}));
        Call { id: String::new(), name: name.to_owned(), arguments }
    }

    /// What is seen of each call, where `a` and `b` fail and `A` succeeds with the arguments of `a`.
    fn seen(calls: &str) -> String {
        let mut repeats = Repeats::default();
        let see = |letter: char| {
            let call = call("read_file", &letter.to_lowercase().to_string());
            let seen = repeats.see(&call);
            if seen == Seen::New {
                repeats.record(&call, letter.is_uppercase());
            }
            match seen {
                Seen::New => 'n',
                Seen::Again => 'w',
                Seen::TooOften => '!',
            }
        };
        calls.chars().map(see).collect()
    }

    #[test]
    fn three_failures_two_warnings_then_the_end() {
        assert_eq!(seen("aaaaaa"), "nnnww!");
    }

    #[test]
    fn another_call_or_a_success_starts_the_count_anew() {
        assert_eq!(seen("aabaaaa"), "nnnnnnw");
        assert_eq!(seen("aaAaaaa"), "nnnnnnw");
        assert_eq!(seen("aaaabaaaa"), "nnnwnnnnw");
        assert_eq!(seen("AAAAAAAA"), "nnnnnnnn");
        assert_eq!(seen("abababab"), "nnnnnnnn");
    }

    #[test]
    fn the_tool_counts_too() {
        let mut repeats = Repeats::default();
        for name in ["read_file", "list_directory", "read_file", "list_directory"] {
            assert_eq!(repeats.see(&call(name, "x")), Seen::New);
            repeats.record(&call(name, "x"), false);
        }
    }
}
