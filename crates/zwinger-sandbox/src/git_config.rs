//! Settings of a git repository, as far as it takes to say that they run nothing: the syntax of git-config(1), strictly. What
//! does not parse here is not safe, whatever git makes of it.

/// One variable. Section and name are in lower case, as git compares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    section: String,
    subsection: Option<Vec<u8>>,
    name: String,
    /// `None`: the name alone, which means true.
    value: Option<Vec<u8>>,
}

/// A text that this parser does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The variables that could make git run or read something, in their order; empty for settings that are safe.
pub(crate) fn risky(text: &[u8]) -> Result<Vec<Variable>, Malformed> {
    let variables = parse(text)?;
    let far = variables.iter().any(|variable| variable.names_another_machine());
    Ok(variables.into_iter().filter(|variable| !variable.is_safe() || far && variable.fetches_when_read()).collect())
}

impl Variable {
    /// `core.worktree`: where the files of a git directory are.
    pub(crate) fn worktree(&self) -> Option<&[u8]> {
        self.is_of("core", "worktree").then_some(self.value.as_deref()).flatten()
    }

    /// `extensions.worktreeConfig`: whether settings of single worktrees count as well.
    pub(crate) fn lets_worktrees_differ(&self) -> bool {
        self.is_of("extensions", "worktreeconfig")
    }

    /// Of a partial clone, in which `git status` fetches what is missing (git-clone(1), `--filter`).
    fn fetches_when_read(&self) -> bool {
        self.is_of("extensions", "partialclone") || self.section == "remote" && self.name == "promisor"
    }

    fn names_another_machine(&self) -> bool {
        let is_address = self.name == "url" || self.is_of("extensions", "partialclone");
        is_address && self.value.as_deref().is_some_and(|value| !is_path(value))
    }

    fn is_of(&self, section: &str, name: &str) -> bool {
        self.section == section && self.subsection.is_none() && self.name == name
    }

    /// The list of what git itself writes when it makes, clones or tracks something, and of what people set often and only changes
    /// what git shows, merges or keeps. Everything else is not safe.
    fn is_safe(&self) -> bool {
        let value = self.value.as_deref().unwrap_or(b"true");
        match (self.section.as_str(), self.subsection.as_deref(), self.name.as_str()) {
            (
                "core",
                None,
                "repositoryformatversion"
                | "filemode"
                | "bare"
                | "logallrefupdates"
                | "ignorecase"
                | "precomposeunicode"
                | "symlinks"
                | "sharedrepository"
                | "sparsecheckout"
                | "sparsecheckoutcone"
                | "autocrlf"
                | "eol"
                | "safecrlf"
                | "quotepath"
                | "longpaths"
                | "preloadindex"
                | "untrackedcache",
            )
            | (
                "receive",
                None,
                "denynonfastforwards" | "denydeletes" | "denycurrentbranch" | "denydeletecurrent" | "fsckobjects",
            )
            | ("transfer", None, "fsckobjects")
            | ("fetch", None, "prune" | "prunetags" | "fsckobjects")
            | ("init", None, "defaultbranch")
            | ("color", None, "ui")
            | ("merge", None, "ff" | "conflictstyle")
            | ("pull", None, "ff")
            | ("push", None, "default" | "autosetupremote" | "followtags")
            | ("rebase", None, "autosquash" | "autostash" | "updaterefs")
            | ("rerere", None, "enabled" | "autoupdate")
            | ("gc", None, "auto")
            | ("index", None, "sparse")
            | ("extensions", None, "objectformat" | "refstorage" | "relativeworktrees")
            | ("remote", Some(_), "promisor" | "mirror" | "prune" | "prunetags")
            | ("submodule", None, "alternatelocation" | "alternateerrorstrategy")
            | ("submodule", Some(_), "active") => value.iter().all(u8::is_ascii_alphanumeric),
            // A promisor that is no remote's name is an address.
            ("remote" | "submodule", Some(_), "url")
            | ("branch", Some(_), "remote")
            | ("extensions", None, "partialclone") => is_plain_address(value),
            ("remote", Some(_), "fetch" | "partialclonefilter")
            | ("branch", Some(_), "merge")
            | ("submodule", None, "active") => !value.starts_with(b"-"),
            ("remote", Some(_), "tagopt") => matches!(value, b"--tags" | b"--no-tags"),
            ("branch", Some(_), "rebase") | ("pull", None, "rebase") => matches!(value, b"true" | b"false"),
            // `!COMMAND` runs one (git-submodule(1)).
            ("submodule", Some(_), "update") => matches!(value, b"checkout" | b"rebase" | b"merge" | b"none"),
            ("user", None, "name" | "email") => true,
            _ => false,
        }
    }
}

/// No `HELPER::ADDRESS`, which runs `git-remote-HELPER` (gitremote-helpers(7)), and nothing that could be taken for an option.
fn is_plain_address(value: &[u8]) -> bool {
    let scheme = value.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
    let helper = value.get(scheme..).is_some_and(|rest| rest.starts_with(b"::"));
    let option = value.starts_with(b"-") || value.windows(4).any(|four| four == b"://-");
    !helper && !option && !value.iter().any(u8::is_ascii_control)
}

/// A path of this machine or the name of a remote, and neither `SCHEME://` nor `HOST:PATH` (git-clone(1), "Git URLs").
fn is_path(value: &[u8]) -> bool {
    let before_slash = value.split(|byte| *byte == b'/').next().unwrap_or_default();
    value.starts_with(b"file://") || !before_slash.contains(&b':')
}

fn parse(text: &[u8]) -> Result<Vec<Variable>, Malformed> {
    if text.contains(&0) {
        return Err(Malformed);
    }
    let mut reader = Reader { rest: text };
    let mut variables = Vec::new();
    let mut section = None;
    loop {
        reader.skip(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
        match reader.peek() {
            None => return Ok(variables),
            Some(b'#' | b';') => reader.skip(|byte| byte != b'\n'),
            Some(b'[') => section = Some(reader.section()?),
            Some(byte) if byte.is_ascii_alphabetic() => {
                let (section, subsection) = section.clone().ok_or(Malformed)?;
                let name = reader.word(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
                let value = reader.value()?;
                variables.push(Variable { section, subsection, name, value });
            }
            Some(_) => return Err(Malformed),
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.next();
        }
    }

    fn word(&mut self, wanted: impl Fn(u8) -> bool) -> String {
        let mut word = String::new();
        while let Some(byte) = self.peek().filter(|byte| wanted(*byte)) {
            word.push(char::from(byte.to_ascii_lowercase()));
            self.next();
        }
        word
    }

    /// `[section]` or `[section "subsection"]`. The old `[section.subsection]` is not taken.
    fn section(&mut self) -> Result<(String, Option<Vec<u8>>), Malformed> {
        self.next();
        let section = self.word(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let spaced = matches!(self.peek(), Some(b' ' | b'\t'));
        self.skip(|byte| matches!(byte, b' ' | b'\t'));
        let subsection = match self.next() {
            Some(b']') if !spaced => None,
            Some(b'"') if spaced => Some(self.subsection()?),
            _ => return Err(Malformed),
        };
        if section.is_empty() { Err(Malformed) } else { Ok((section, subsection)) }
    }

    fn subsection(&mut self) -> Result<Vec<u8>, Malformed> {
        let mut subsection = Vec::new();
        loop {
            match self.next().ok_or(Malformed)? {
                b'"' => break,
                b'\n' => return Err(Malformed),
                b'\\' => match self.next() {
                    Some(byte @ (b'"' | b'\\')) => subsection.push(byte),
                    _ => return Err(Malformed),
                },
                byte => subsection.push(byte),
            }
        }
        if self.next() == Some(b']') { Ok(subsection) } else { Err(Malformed) }
    }

    fn value(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        self.skip(|byte| matches!(byte, b' ' | b'\t'));
        match self.peek() {
            None | Some(b'\n' | b'#' | b';') => return Ok(None),
            Some(b'\r') if self.rest.starts_with(b"\r\n") => return Ok(None),
            Some(b'=') => self.next(),
            Some(_) => return Err(Malformed),
        };
        self.skip(|byte| matches!(byte, b' ' | b'\t'));
        let (mut value, mut quoted, mut end) = (Vec::new(), false, 0);
        loop {
            match self.next() {
                None | Some(b'\n') if quoted => return Err(Malformed),
                None | Some(b'\n') => break,
                Some(b'\r') if self.rest.starts_with(b"\n") && !quoted => {}
                Some(b'#' | b';') if !quoted => {
                    self.skip(|byte| byte != b'\n');
                    break;
                }
                Some(b'"') => {
                    quoted = !quoted;
                    end = value.len();
                }
                Some(b'\\') => {
                    match self.next() {
                        Some(byte @ (b'"' | b'\\')) => value.push(byte),
                        Some(b'n') => value.push(b'\n'),
                        Some(b't') => value.push(b'\t'),
                        // Git takes the next line for more of this one.
                        Some(b'\n') => continue,
                        _ => return Err(Malformed),
                    }
                    end = value.len();
                }
                Some(byte @ (b' ' | b'\t')) if !quoted => value.push(byte),
                Some(byte) => {
                    value.push(byte);
                    end = value.len();
                }
            }
        }
        value.truncate(end);
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLONED: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
        \tlogallrefupdates = true\n[remote \"origin\"]\n\turl = /srv/project ; the server's\n\
        \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n\
        [user]\n\tname = \"N. \\\"x\\\" N\"\n\temail = n@example.org\n";

    fn is_safe(text: &str) -> bool {
        risky(text.as_bytes()).is_ok_and(|risky| risky.is_empty())
    }

    #[test]
    fn what_git_writes_by_itself_is_safe() {
        for text in ["", "# nothing\n", CLONED, &CLONED.replace('\n', "\r\n"), "[core] bare", "[CORE]\n FileMode=off\n"]
        {
            assert!(is_safe(text), "{text}");
        }
    }

    /// As git 2.47 writes it for `init --shared`, `clone --recurse-submodules`, `--sparse`, `--filter=blob:none`, `--no-tags` and `--reference`.
    const WRITTEN_BY_GIT: [&str; 7] = [
        "[core]\n\tsharedrepository = 1\n[receive]\n\tdenyNonFastforwards = true\n",
        "[submodule]\n\tactive = .\n",
        "[submodule \"lib\"]\n\tactive = true\n\turl = https://example.org/lib\n\tupdate = checkout\n",
        "[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = true\n[index]\n\tsparse = false\n",
        "[extensions]\n\tpartialClone = origin\n\trelativeWorktrees = true\n",
        "[remote \"o\"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n\ttagOpt = --no-tags\n",
        "[submodule]\n\talternateLocation = superproject\n\talternateErrorStrategy = die\n",
    ];

    #[test]
    fn what_people_set_often_is_safe() {
        for text in [
            "[receive]\n\tdenyCurrentBranch = updateInstead\n\tdenyDeletes = true\n",
            "[core]\n\tautocrlf = input\n\tuntrackedCache = true\n",
            "[pull]\n\trebase = true\n\tff = only\n[fetch]\n\tprune = true\n[push]\n\tdefault = current\n",
            "[merge]\n\tconflictStyle = zdiff3\n[rerere]\n\tenabled\n[gc]\n\tauto = 0\n[init]\n\tdefaultBranch = main\n",
        ] {
            assert!(is_safe(&format!("{CLONED}{text}")), "{text}");
        }
    }

    #[test]
    fn what_git_writes_for_other_clones_is_safe() {
        for text in WRITTEN_BY_GIT {
            assert!(is_safe(&format!("{CLONED}{text}")), "{text}");
        }
    }

    #[test]
    fn b05_a_partial_clone_of_another_machine_fetches_when_it_is_read() {
        let clone = |url: &str| {
            let remote = "[remote \"o\"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n\turl = ";
            format!("[extensions]\n\tpartialClone = o\n{remote}{url}\n")
        };
        for near in ["/srv/project", "../project", "file:///srv/project"] {
            assert!(is_safe(&clone(near)), "{near}");
        }
        for far in ["http://127.0.0.1/SECRET", "ssh://host/x", "host:x", "user@host:/x"] {
            assert!(!is_safe(&clone(far)), "{far}");
            assert!(is_safe(&format!("[remote \"o\"]\n\turl = {far}\n")), "{far}");
        }
    }

    const RISKY: [&str; 36] = [
        "[core]\n\tsharedRepository = 0660 ../x",
        "[receive]\n\tprocReceiveRefs = refs/x",
        "[pull]\n\trebase = interactive",
        "[merge]\n\ttool = x",
        "[merge \"ff\"]\n\tdriver = x",
        "[merge \"x\"]\n\tff = true",
        "[color]\n\tpager = true",
        "[gc]\n\trecentObjectsHook = x",
        "[init]\n\ttemplateDir = x",
        "[submodule \"x\"]\n\tupdate = !sh",
        "[submodule \"x\"]\n\turl = ext::sh -c x",
        "[submodule]\n\tactive = --x",
        "[extensions]\n\tpartialClone = ext::sh",
        "[remote \"o\"]\n\tpartialclonefilter = --x",
        "[remote \"o\"]\n\ttagOpt = --upload-pack=x",
        "[remote \"o\"]\n\tvcs = x",
        "[core]\n\tfsmonitor = ./x\n",
        "[core] fsmonitor = ./x",
        "[Core]\nHooksPath = /x",
        "[include]\n\tpath = x",
        "[includeIf \"gitdir:/\"]\n\tpath = x",
        "[alias]\n\tst = !sh",
        "[filter \"x\"]\n\tclean = sh",
        "[remote \"o\"]\n\turl = ext::sh -c x",
        "[remote \"o\"]\n\turl = \"e\"xt::sh",
        "[remote \"o\"]\n\turl = ex\\\nt::sh",
        "[remote \"o\"]\n\turl = --upload-pack=x",
        "[remote \"o\"]\n\turl = ssh://-oProxyCommand=x/y",
        "[remote \"o\"]\n\tuploadpack = x",
        "[branch \"b\"]\n\trebase = interactive",
        "[branch \"b\"]\n\tremote = ext::sh",
        "[core.x]\n\tbare = true",
        "[core \"x\"]\n\tbare = true",
        "[core]\n\tbare = false\\\n\n\tsshCommand = x",
        "[core]\n\tworktree = /",
        "[extensions]\n\tworktreeConfig = true",
    ];

    #[test]
    fn what_could_run_something_is_not_safe() {
        for text in RISKY {
            assert!(!is_safe(text), "{text}");
            assert!(!is_safe(&format!("{CLONED}{text}")), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text: Vec<u8>) {
            let _ = risky(&text);
        }

        #[test]
        fn nothing_around_it_makes_a_risk_safe(before in "[ -~\\n\\t]{0,40}", after in "[ -~\\n\\t]{0,40}", which in 0..RISKY.len()) {
            // A comment, an open quote or a continuation may take it in; a whole line of its own cannot.
            let text = format!("{CLONED}{}\n{}\n{after}", before.replace(['\\', '"'], ""), RISKY[which]);
            prop_assert!(!is_safe(&text), "{text}");
        }

        #[test]
        fn only_known_sections_are_safe(section in "[a-z]{1,9}", name in "[a-z]{1,9}", value in "[a-z]{0,9}") {
            let known = [
                "core", "extensions", "index", "submodule", "user", "receive", "transfer", "fetch", "init", "color", "merge",
                "pull", "push", "rebase", "rerere", "gc",
            ];
            let known = known.contains(&section.as_str());
            let text = format!("[{section}]\n{name} = {value}\n");
            prop_assert!(known || !is_safe(&text));
        }
    }
}
