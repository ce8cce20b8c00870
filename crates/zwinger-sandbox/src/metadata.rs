//! What of a workspace the host runs or trusts by itself: the one table of it.
//!
//! What counts is what a program of the host runs or obeys without the person asking for a build, a test or a script:
//!
//! - At the top of the workspace: settings of everything that is opened or started there (editors, agents, package managers, shells).
//! - At any depth: what git runs, cargo's settings, and what is read from below though the person opened or started something at the
//!   top. Agents take instructions and rules from the directory of a file that they look at (`AGENTS.md`, `CLAUDE.md`, `GEMINI.md`,
//!   `QWEN.md`, `.goosehints`, `.claude`, `.codex`, `.cursor`, `.gemini`, `.qwen`, `.windsurf`), and Zed its settings (`.zed`).
//!   `.vscode` and `.idea` count as well: an editor trusts a project below one that it trusts, and runs its tasks when that is
//!   opened. Not below `node_modules`, where packages bring such directories along and nobody opens one.
//! - Not at any depth, because they are read of the directory where something is started, or ask first: rules of a whole project
//!   (`.clinerules`, `.roorules`, `.roo`, `.roomodes`, `.cursorrules`, `.windsurfrules`, `.junie`, `.kiro`, `.continue`,
//!   `.aider.conf.yml`, `crush.json`, `*.code-workspace`), `.mcp.json`, `.devcontainer`, `.envrc`, mise's and lefthook's, those of
//!   vim and Emacs, what interactive interpreters and debuggers run when they start (`.irbrc`, `.gdbinit`), and package managers'.
//! - Not at all: names that a build makes (`.bundle/config`, `.project`, `mise.lock`), and settings of what a person asks to build,
//!   test or check the code with.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Settings at the top of a project that the host's programs read when they meet them.
const SETTINGS: [&str; 124] = [
    // Editors.
    ".dir-locals-2.el",
    ".dir-locals.el",
    ".exrc",
    ".fleet",
    ".gvimrc",
    ".helix",
    ".idea",
    ".lite_project.lua",
    ".lvimrc",
    ".nova",
    ".nvim.lua",
    ".nvimrc",
    ".run",
    ".theia",
    ".vim",
    ".vimrc",
    ".vscode",
    ".ycm_extra_conf.py",
    ".zed",
    // Agents.
    ".agent",
    ".agents",
    ".aider.conf.yml",
    ".aider.model.settings.yml",
    ".amazonq",
    ".amp",
    ".augment",
    ".augment-guidelines",
    ".claude",
    ".clinerules",
    ".codex",
    ".continue",
    ".continuerc.json",
    ".continuerules",
    ".crush.json",
    ".cursor",
    ".cursorrules",
    ".factory",
    ".gemini",
    ".goosehints",
    ".iflow",
    ".junie",
    ".kilocode",
    ".kilocodemodes",
    ".kilocoderules",
    ".kiro",
    ".mcp.json",
    ".opencode",
    ".opencode.json",
    ".openhands",
    ".openhands_instructions",
    ".qwen",
    ".roo",
    ".roomodes",
    ".roorules",
    ".rules",
    ".tabnine",
    ".trae",
    ".vibe",
    ".windsurf",
    ".windsurfrules",
    "AGENT.md",
    "AGENTS.md",
    "AGENTS.override.md",
    "AmazonQ.md",
    "CLAUDE.local.md",
    "CLAUDE.md",
    "CRUSH.local.md",
    "CRUSH.md",
    "Crush.local.md",
    "Crush.md",
    "GEMINI.md",
    "IFLOW.md",
    "QWEN.md",
    "WARP.md",
    "crush.json",
    "crush.local.md",
    "crush.md",
    "opencode.json",
    "opencode.jsonc",
    // What runs hooks of git.
    ".git-hooks",
    ".githooks",
    ".gitmodules",
    ".husky",
    ".huskyrc",
    ".huskyrc.js",
    ".huskyrc.json",
    ".lefthook",
    ".lefthook-local",
    ".local-overcommit.yml",
    ".overcommit.yml",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    "captainhook.json",
    "prek.toml",
    // Shells, and what changes their environment.
    ".autoenv",
    ".autoenv.leave",
    ".autoenv.zsh",
    ".autoenv_leave.zsh",
    ".devcontainer",
    ".devcontainer.json",
    ".envrc",
    ".mise",
    ".rbenv-vars",
    ".rvmrc",
    ".tool-versions",
    // Interactive interpreters and debuggers.
    ".Renviron",
    ".Rprofile",
    ".byebugrc",
    ".gdbinit",
    ".ghci",
    ".iex.exs",
    ".irbrc",
    ".lldbinit",
    ".ocamlinit",
    ".octaverc",
    ".pdbrc",
    ".pryrc",
    "_irbrc",
    "irb.rc",
    // Others.
    ".lazygit.yml",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".zwinger.toml",
];

/// More of them, by how the name begins and ends.
const SETTINGS_LIKE: [(&str, &str); 5] = [
    ("", ".code-workspace"),
    ("", ".sublime-project"),
    // Rules of one mode.
    (".clinerules-", ""),
    (".kilocoderules-", ""),
    (".roorules-", ""),
];

/// Settings that are read at any depth.
const NESTED: [&str; 20] = [
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".goosehints",
    ".idea",
    ".iflow",
    ".qwen",
    ".vscode",
    ".windsurf",
    ".zed",
    "AGENT.md",
    "AGENTS.md",
    "AGENTS.override.md",
    "CLAUDE.local.md",
    "CLAUDE.md",
    "GEMINI.md",
    "IFLOW.md",
    "QWEN.md",
    "WARP.md",
];

/// Of these, what is read only where somebody opens a project.
const OF_EDITORS: [&str; 2] = [".idea", ".vscode"];

/// In `.github`, what agents read or run (GitHub Copilot).
const OF_GITHUB: [&str; 5] = ["agents", "copilot-instructions.md", "hooks", "instructions", "skills"];

/// Parts of a git directory, a submodule's or a worktree's own, that make git run or trust something.
const OF_GIT: [(&str, Kind); 8] = [
    ("config", Kind::Config),
    ("config.worktree", Kind::WorktreeConfig),
    ("hooks", Kind::Hook),
    // Addresses, which may be `HELPER::ADDRESS` (git-fetch(1), "Named file in $GIT_DIR/remotes").
    ("remotes", Kind::Hook),
    // The same in one line each; git init makes the empty directory.
    ("branches", Kind::Hook),
    // Commands of lazygit, for one repository.
    ("lazygit.yml", Kind::Setting),
    ("commondir", Kind::CommonDirectory),
    ("gitdir", Kind::Worktree),
];

/// Where a directory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The workspace itself.
    Top,
    /// A directory in it.
    Second,
    /// Anywhere below.
    Below,
    /// In a git directory, submodules' and worktrees' own included.
    Git,
}

/// What something of the protected kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Of the host's programs.
    Setting,
    /// The same, in a directory below. There may be many: it is not kept as it is, but put back when the session is over.
    NestedSetting,
    /// A program that git runs.
    Hook,
    /// Settings of a repository.
    Config,
    /// Settings of one worktree.
    WorktreeConfig,
    /// `info/attributes`.
    Attributes,
    /// `commondir`: where the rest of a git directory is.
    CommonDirectory,
    /// `gitdir`: where the worktree of a git directory is.
    Worktree,
    /// A `.git` that is no directory.
    GitLink,
    /// A link where git, or cargo, would follow it to settings.
    Link,
    /// A link elsewhere that leads into a git directory: there may stand in it what nobody would look for.
    IntoGit,
    /// `HEAD` of a directory that git takes for a repository though it is not named `.git`.
    BareHead,
    /// A directory that cannot be looked into.
    Closed,
    /// What a rebase in progress is still to do. Git writes it, so that it is not kept as it is.
    RebaseTodo,
}

impl Kind {
    /// What a person is told that it is.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Setting | Self::NestedSetting => "settings that programs read by themselves",
            Self::Hook => "a hook",
            Self::Config => "git settings that could run something",
            Self::WorktreeConfig => "git settings of a worktree",
            Self::Attributes => "git attributes",
            Self::CommonDirectory | Self::Worktree => "a part of a git directory that leads elsewhere",
            Self::GitLink => "a .git that leads to no repository of the workspace",
            Self::Link => "a link to settings",
            Self::IntoGit => "a link into a git directory",
            Self::BareHead => "it makes its directory a bare repository",
            Self::Closed => "a directory that nobody can look into",
            Self::RebaseTodo => "a rebase in progress that would run something",
        }
    }
}

/// What of the kind an entry is by its name; `bare` is whether its directory looks like a bare repository.
pub(crate) fn kind_of(name: &OsStr, path: &Path, place: Place, bare: bool) -> Option<Kind> {
    let below = |directory| path.parent().is_some_and(|parent| parent.ends_with(directory));
    // In a repository of any name, for one without files of its own may have worktrees.
    if name == "git-rebase-todo" && below("rebase-merge") {
        return Some(Kind::RebaseTodo);
    }
    if place == Place::Git || bare {
        let of_git = OF_GIT.iter().find(|(of_git, _)| name == *of_git);
        if let Some((_, kind)) = of_git.filter(|(_, kind)| *kind != Kind::Hook || !is_named_so(path)) {
            return Some(*kind);
        }
        if place == Place::Git {
            return (name == "attributes" && below("info")).then_some(Kind::Attributes);
        }
    }
    let of_bare = || path.ancestors().nth(2).is_some_and(|parent| parent.join("HEAD").symlink_metadata().is_ok());
    if name == "attributes" && below("info") && of_bare() {
        return Some(Kind::Attributes);
    }
    let is_in = |names: &[&str]| names.iter().any(|known| name == *known);
    let of_top = match place {
        Place::Top => is_in(&SETTINGS) || is_like_a_setting(name.as_bytes()),
        Place::Second if below(".config") => name == "mise" || is_of_tools(name.as_bytes()),
        Place::Second if below("mise") => is_between(name.as_bytes(), "config.", ".toml") || name == "config.toml",
        Place::Second | Place::Below | Place::Git => false,
    };
    // cargo reads either name (cargo book, "Configuration").
    let of_cargo = (name == "config.toml" || name == "config") && below(".cargo");
    if of_top || of_cargo {
        return Some(Kind::Setting);
    }
    let in_packages = || path.iter().any(|component| component == "node_modules");
    let nested = is_in(&NESTED) && !(is_in(&OF_EDITORS) && in_packages());
    (nested || is_in(&OF_GITHUB) && below(".github")).then_some(Kind::NestedSetting)
}

/// Whether it is the git directory of a worktree or submodule that is named as a part of one is.
fn is_named_so(path: &Path) -> bool {
    let is_repository = |path: &Path| path.ends_with(".git") || path.join("HEAD").symlink_metadata().is_ok();
    let mut above = path.ancestors().skip(1);
    let beside_others = above
        .next()
        .is_some_and(|parent| (parent.ends_with("worktrees") || parent.ends_with("modules")) && !is_repository(parent));
    beside_others && above.next().is_some_and(is_repository)
}

fn is_like_a_setting(name: &[u8]) -> bool {
    let without_dot = name.strip_prefix(b".").unwrap_or(name);
    is_of_tools(without_dot) || SETTINGS_LIKE.iter().any(|(start, end)| is_between(name, start, end))
}

/// Names that mise and lefthook read with a dot, without, and in `.config` (lefthook's documentation, "Config file name").
fn is_of_tools(name: &[u8]) -> bool {
    let of_lefthook = name.strip_prefix(b"lefthook").map(|rest| rest.strip_prefix(b"-local").unwrap_or(rest));
    let formats: [&[u8]; 5] = [b".yml", b".yaml", b".toml", b".json", b".jsonc"];
    let of_mise = name == b"mise.toml" || is_between(name, "mise.", ".toml");
    of_mise || of_lefthook.is_some_and(|format| formats.contains(&format))
}

fn is_between(name: &[u8], start: &str, end: &str) -> bool {
    name.strip_prefix(start.as_bytes()).is_some_and(|rest| rest.ends_with(end.as_bytes()))
}

/// What git takes for a repository whatever its name is (setup.c, is_git_directory): the rest of one that has `commondir` is
/// looked for there.
pub(crate) fn looks_bare<'a>(names: impl Iterator<Item = &'a OsStr>) -> bool {
    let [mut head, mut objects, mut refs, mut common] = [false; 4];
    for name in names {
        match name.as_bytes() {
            b"HEAD" => head = true,
            b"objects" => objects = true,
            b"refs" => refs = true,
            b"commondir" => common = true,
            _ => {}
        }
    }
    head && (objects && refs || common)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, place: Place) -> Option<Kind> {
        let path = Path::new("/w").join(name);
        kind_of(path.file_name().unwrap(), &path, place, false)
    }

    #[test]
    fn b01_names_of_settings() {
        let at_the_top = [
            "opencode.jsonc",
            "lefthook.toml",
            ".lefthook.yaml",
            "lefthook-local.json",
            ".lefthook-local.jsonc",
            ".helix",
            ".vimrc",
            ".gvimrc",
            ".exrc",
            ".nvimrc",
            ".nvim.lua",
            "mise.local.toml",
            ".mise.local.toml",
            "mise.test.toml",
            ".mise.toml",
            "crush.json",
            ".crush.json",
            ".roomodes",
            ".roorules-code",
            ".kilocodemodes",
            ".dir-locals-2.el",
            ".irbrc",
            ".pryrc",
            "x.code-workspace",
            ".lefthook",
        ];
        let below = [".qwen", "QWEN.md", "AGENT.md", ".goosehints", ".claude"];
        for name in at_the_top.into_iter().chain(below) {
            assert_eq!(of(name, Place::Top), Some(Kind::Setting), "{name}");
        }
        for name in at_the_top {
            assert_eq!(of(&format!("a/b/{name}"), Place::Below), None, "{name}");
        }
        for name in below.map(|name| format!("a/b/{name}")).into_iter().chain([".github/skills".into()]) {
            assert_eq!(of(&name, Place::Below), Some(Kind::NestedSetting), "{name}");
        }
        for name in
            [".config/mise", ".config/mise.toml", ".config/mise.local.toml", ".config/lefthook.yml", "mise/config.toml"]
        {
            assert_eq!(of(name, Place::Second), Some(Kind::Setting), "{name}");
            assert_eq!(of(&format!("a/{name}"), Place::Below), None, "{name}");
        }
    }

    #[test]
    fn b13_what_builds_make_is_no_setting() {
        let files = [
            ".bundle",
            ".project",
            ".classpath",
            ".settings",
            "mise.lock",
            "mise",
            "lefthook",
            "lefthook.md",
            "lefthook-checksums.txt",
            ".config",
            ".gradle",
            ".cache",
            ".tox",
            ".venv",
            ".next",
            ".nyc_output",
            ".pytest_cache",
            ".ruby-version",
            ".python-version",
            ".nvmrc",
            ".editorconfig",
            ".eslintrc.json",
            ".bazelrc",
            ".terraform",
            ".crush",
            ".RData",
            ".Rhistory",
            ".merlin",
            ".ensime",
            ".metals",
            ".bsp",
            ".bloop",
            ".clangd",
            "compile_commands.json",
            "package.json",
            "Makefile",
            ".lefthook.txt",
            ".mcp",
            "vimrc",
            "agents",
            "skills",
        ];
        for place in [Place::Top, Place::Below] {
            for name in files {
                assert_eq!(of(name, place), None, "{name}");
            }
        }
        for name in
            [".config/nextest.toml", ".config/dotnet-tools.json", "mise/tasks", "src/lefthook.yml", "src/mise.toml"]
        {
            assert_eq!(of(name, Place::Second), None, "{name}");
        }
    }
}
