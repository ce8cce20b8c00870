//! What the documents say of tests, and what ARCHITECTURE.md says of the house, is true.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::scratch::{list, read_text};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    read_text(repository().join(name))
}

/// Every Rust file of the crates, with its text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut open = vec![repository().join("crates")];
    let mut sources = Vec::new();
    while let Some(directory) = open.pop() {
        for path in list(&directory).into_iter().map(|name| directory.join(name)) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = read_text(&path);
                sources.push((path, text));
            }
        }
    }
    sources
}

/// The names of all tests: what stands behind `#[test]`, and what is listed for every caller.
fn tests() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for (_, text) in sources() {
        let mut lines = text.lines().map(str::trim);
        while lines.any(|line| line == "#[test]") {
            let function = lines.find_map(|line| line.strip_prefix("fn ")?.split_once('('));
            tests.extend(function.map(|(name, _)| name.to_owned()));
        }
        let lists = text.split("for_every_caller!(").skip(1).filter_map(|rest| Some(rest.split_once(");")?.0));
        let names = lists.flat_map(|list| list.split(',')).map(str::trim);
        tests.extend(names.filter(|name| is_name(name)).map(str::to_owned));
    }
    assert!(tests.len() > 200, "the sources were read");
    tests
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// What stands in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The cells of a table's rows, those of its head and of the line below it too.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter_map(|line| Some(line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect()))
}

/// The case ids that a test's name begins with, such as `a01_…` or `a01_a07_…`.
fn case(name: &str) -> Option<BTreeSet<String>> {
    let ids = name.split('_').take_while(|part| {
        let mut characters = part.chars();
        part.len() == 3
            && characters.next().is_some_and(|kind| ('a'..='p').contains(&kind))
            && characters.all(|c| c.is_ascii_digit())
    });
    Some(ids.map(str::to_uppercase).collect()).filter(|ids: &BTreeSet<String>| !ids.is_empty())
}

#[test]
fn attacks_are_tried() {
    let tried: BTreeSet<(String, String)> = tests()
        .into_iter()
        .flat_map(|name| case(&name).unwrap_or_default().into_iter().map(move |id| (id, name.clone())))
        .collect();
    let document = document("docs/attacks.md");
    let said: BTreeSet<(String, String)> = rows(&document)
        .filter(|cells| cells.first().is_some_and(|id| id.len() == 3))
        .flat_map(|cells| {
            let names = cells.iter().skip(1).flat_map(|cell| quoted(cell)).collect::<Vec<_>>();
            names.into_iter().map(move |name| (cells[0].to_owned(), name.to_owned()))
        })
        // Code in the description of an attack is no test.
        .filter(|(_, name)| case(name).is_some())
        .collect();
    assert!(said.len() > 50, "the table was read");
    assert_eq!(said.difference(&tried).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "named, but not there");
    assert_eq!(tried.difference(&said).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "there, but not named");
}

#[test]
fn statements_are_held() {
    let tests = tests();
    let document = document("docs/seeds.md");
    let mut numbers = BTreeMap::<&str, usize>::new();
    for row in rows(&document).filter(|cells| cells.first().is_some_and(|id| id.contains('-') && *id != "---")) {
        let [id, statement, status, held] = row.as_slice() else { panic!("not four cells: {row:?}") };
        let (document, number) = id.split_once('-').unwrap();
        let last = numbers.entry(document).or_default();
        *last += 1;
        assert_eq!(number, format!("{last:02}"), "{id} is not the next one");
        assert!(!statement.trim().is_empty(), "{id}");
        let (word, more) = status.split_once(": ").unwrap_or((status, ""));
        let names: Vec<_> = quoted(held).collect();
        match word {
            "done" => assert!(!names.is_empty(), "{id} is done, and no test says so"),
            "partly" | "differently" => assert!(!more.is_empty(), "{id} does not say in what"),
            "planned" => assert!(names.is_empty(), "{id} has tests, so there is something"),
            _ => panic!("{id}: {status:?} is no status"),
        }
        assert!(!names.is_empty() || *held == "–", "{id}: {held}");
        for name in names {
            assert!(tests.contains(name), "{id}: there is no test {name}");
        }
    }
    assert_eq!(numbers.into_keys().collect::<Vec<_>>(), ["S0", "S1", "S2", "S3"]);
    let lines = document.lines().filter(|line| line.starts_with("| S")).count();
    assert_eq!(lines, rows(&document).filter(|cells| cells[0].starts_with('S')).count(), "every row was read");
}

#[test]
fn invariants_are_held() {
    let tests = tests();
    let document = document("ARCHITECTURE.md");
    let section = document.split("\n## Invariants\n").nth(1).expect("a section on invariants");
    let section = section.split("\n## ").next().unwrap_or_default();
    let lints = read_text(repository().join("Cargo.toml"));
    let is_lint =
        |name: &str| ["deny", "forbid"].iter().any(|level| lints.contains(&format!("\n{name} = \"{level}\"\n")));
    let rows: Vec<_> = rows(section).skip(1).filter(|cells| cells[0] != "---").collect();
    assert!(rows.len() > 5, "the table was read");
    for row in rows {
        let [invariant, held] = row.as_slice() else { panic!("not two cells: {row:?}") };
        let names: Vec<_> = quoted(held).collect();
        assert!(!names.is_empty(), "nothing holds: {invariant}");
        for name in names {
            assert!(tests.contains(name) || is_lint(name), "{invariant}: there is no test or lint {name}");
        }
    }
}

/// The lints that are named hold only where they are not switched off.
#[test]
fn lints_hold_everywhere() {
    for crate_name in list(&repository().join("crates")) {
        let manifest = read_text(repository().join("crates").join(&crate_name).join("Cargo.toml"));
        assert!(manifest.contains("[lints]\nworkspace = true\n"), "{crate_name}");
    }
    let switched_off = |lint: &str| -> Vec<String> {
        let attribute = |line: &str| line.trim_start().starts_with(['#']) && line.contains(lint);
        let sources = sources().into_iter().filter(|(_, text)| text.lines().any(attribute));
        sources.map(|(path, _)| path.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(switched_off("unsafe_code"), ["sys.rs"]);
}

#[test]
fn the_library_knows_no_door() {
    const DOORS: [&str; 14] = [
        "clap",
        "crossterm",
        "ratatui",
        "ureq",
        "reqwest",
        "hyper",
        "axum",
        "rmcp",
        "tokio",
        "async-std",
        "smol",
        "futures",
        "zwinger",
        "anyhow",
    ];
    for name in ["zwinger-core", "zwinger-sandbox"] {
        let manifest = read_text(repository().join("crates").join(name).join("Cargo.toml"));
        let dependencies = manifest.split("\n[dependencies]\n").nth(1).expect("dependencies");
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        let used: Vec<_> = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).collect();
        assert!(used.contains(&"serde"), "the manifest was read: {used:?}");
        assert!(!used.iter().any(|used| DOORS.contains(used)), "{name} depends on one of {DOORS:?}");
        // The direction of the crates: core knows the sandbox, the sandbox neither of the others.
        assert!(name == "zwinger-core" || !used.iter().any(|used| used.starts_with("zwinger")), "{used:?}");
    }
}
