//! The environment inside: nine variables of the host, fixed in code, and our own constants.

use std::ffi::{OsStr, OsString};

/// The only variables that are taken over from the host. An allow-list, so no name of a secret can be forgotten.
pub const INHERITED: [&str; 9] = ["PATH", "HOME", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "USER", "SHELL", "TMPDIR"];

/// Set for every command: nothing inside may wait for a person at a pager, an editor or a password prompt.
pub const CONSTANTS: [(&str, &str); 6] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    ("GIT_EDITOR", "false"),
];

/// The variables for inside, from those of the host. `TMPDIR` becomes `tmpdir`; PATH loses its relative entries, which
/// would name programs of the workspace.
pub fn inside(host: impl IntoIterator<Item = (OsString, OsString)>, tmpdir: &OsStr) -> Vec<(OsString, OsString)> {
    let mut inside: Vec<(OsString, OsString)> = host
        .into_iter()
        .filter(|(name, _)| name != "TMPDIR" && INHERITED.iter().any(|known| name == known))
        .map(|(name, value)| {
            let value = if name == "PATH" { absolute_entries(&value) } else { value };
            (name, value)
        })
        .collect();
    inside.sort();
    inside.push(("TMPDIR".into(), tmpdir.to_owned()));
    inside.extend(CONSTANTS.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))));
    inside
}

fn absolute_entries(path: &OsStr) -> OsString {
    let entries: Vec<_> = std::env::split_paths(path).filter(|entry| entry.is_absolute()).collect();
    // join_paths fails only on an entry with a colon, which split_paths cannot give.
    std::env::join_paths(entries).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn nine_names_and_constants_only() {
        let host = INHERITED
            .iter()
            .map(|name| (OsString::from(name), OsString::from("/x")))
            .chain([("mistral_api_key".into(), "k".into()), ("SSH_AUTH_SOCK".into(), "s".into())])
            .chain([("LD_PRELOAD".into(), "./x.so".into())]);
        let inside = inside(host, OsStr::new("/tmp"));
        let names: Vec<_> = inside.iter().filter_map(|(name, _)| name.to_str()).collect();
        assert_eq!(names.len(), INHERITED.len() + CONSTANTS.len());
        assert!(names.iter().all(|name| INHERITED.contains(name) || CONSTANTS.iter().any(|(own, _)| own == name)));
    }

    #[test]
    fn g07_foreign_bytes_and_relative_path_entries() {
        let foreign = OsString::from_vec(vec![b'/', 0xff]);
        let host = [("LANG".into(), foreign.clone()), ("PATH".into(), ".:/bin::sub:/usr/bin".into())];
        let inside = inside(host, OsStr::new("/tmp"));
        assert!(inside.contains(&("LANG".into(), foreign)));
        assert!(inside.contains(&("PATH".into(), "/bin:/usr/bin".into())));
    }
}
