//! What the documents say of tests is true.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::scratch::{list, read_text};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of every Rust file of the crates.
fn sources() -> String {
    let mut open = vec![repository().join("crates")];
    let mut text = String::new();
    while let Some(directory) = open.pop() {
        for path in list(&directory).into_iter().map(|name| directory.join(name)) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&read_text(&path));
            }
        }
    }
    text
}

/// A function whose name begins with a case id, such as `a01_…` or `a01_a07_…`, and the ids.
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
    let sources = sources();
    let tried: BTreeSet<(String, String)> = sources
        .split("fn ")
        .skip(1)
        .filter_map(|rest| rest.split(['(', '<']).next())
        .flat_map(|name| case(name).unwrap_or_default().into_iter().map(|id| (id, name.to_owned())))
        .collect();
    let document = read_text(repository().join("docs/attacks.md"));
    let said: BTreeSet<(String, String)> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | "))
        .filter(|(id, _)| id.len() == 3)
        .flat_map(|(id, rest)| rest.split('`').skip(1).step_by(2).map(|name| (id.to_owned(), name.to_owned())))
        // Code in the description of an attack is no test.
        .filter(|(_, name)| case(name).is_some())
        .collect();
    assert!(said.len() > 50, "the table was read");
    assert_eq!(said.difference(&tried).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "named, but not there");
    assert_eq!(tried.difference(&said).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "there, but not named");
}
