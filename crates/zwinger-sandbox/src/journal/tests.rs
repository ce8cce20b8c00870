use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use tempfile::TempDir;

/// A workspace and zwinger's directory for it. A journal that is dropped is that of a killed session.
struct Case {
    _directory: TempDir,
    work: PathBuf,
    place: PathBuf,
}

impl Case {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let case = Self { _directory: directory, work: base.join("work"), place: base.join("place") };
        fs::create_dir(&case.work).unwrap();
        case
    }

    fn journals(&self) -> Journals {
        Journals::open(&self.place, &self.work).unwrap()
    }

    fn begin(&self) -> Journal {
        let mut journals = self.journals();
        assert_eq!(journals.settle("earlier").unwrap(), Settled::default());
        journals.begin(&Scan::of(&self.work), &[]).unwrap()
    }

    fn settle(&self) -> Settled {
        self.journals().settle("settled").unwrap()
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.work.join(name), content).unwrap();
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.work.join(name)).ok()
    }

    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.place).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "quarantine")
            .collect()
    }
}

fn paths(settled: &Settled) -> Vec<&str> {
    settled.quarantined.iter().map(|quarantined| quarantined.path.to_str().unwrap()).collect()
}

#[test]
fn one_file_stays_and_is_written_over() {
    let case = Case::new();
    assert!(case.begin().close("s").is_empty());
    let inode = || fs::metadata(case.place.join(KEPT)).unwrap().ino();
    let before = inode();
    let (first, second) = (case.begin(), case.begin());
    assert_eq!(case.left().len(), 2);
    assert!(first.close("s").is_empty() && second.close("s").is_empty());
    assert_eq!(case.left(), [KEPT]);
    assert_eq!(inode(), before);
    assert!(case.settle().is_empty());
}

#[test]
fn a_journal_that_is_not_whole_is_no_baseline_and_not_closed() {
    let case = Case::new();
    case.write("AGENTS.md", "before");
    drop(case.begin());
    let journal = case.place.join(KEPT);
    let whole = fs::read(&journal).unwrap();
    // What stood there before is behind what was written last.
    let older = vec![b'x'; whole.len()];
    for length in 0..whole.len() {
        for rest in [&[][..], older.get(length..).unwrap()] {
            if length == 0 && !rest.is_empty() {
                continue;
            }
            fs::write(&journal, [whole.get(..length).unwrap(), rest].concat()).unwrap();
            case.write("AGENTS.md", "after");
            let settled = case.settle();
            assert_eq!((settled.quarantined.len(), settled.unseen.len()), (0, 1), "{length} {settled:?}");
            assert!(settled.unseen[0].contains("cannot be used"), "{settled:?}");
        }
    }
    // It stays, and the next session has one of its own.
    let mut journals = case.journals();
    journals.settle("s").unwrap();
    journals.begin(&Scan::of(&case.work), &[]).unwrap().close("s");
    assert_eq!(case.left(), [KEPT]);
    fs::write(&journal, &whole).unwrap();
    assert_eq!(paths(&case.settle()), ["AGENTS.md"]);
    assert_eq!(case.read("AGENTS.md").as_deref(), Some("before"));
}

#[test]
fn what_a_living_session_made_is_no_baseline_of_another() {
    let case = Case::new();
    case.write("AGENTS.md", "before");
    let first = case.begin();
    case.write("AGENTS.md", "after");
    case.write(".envrc", "x");
    fs::create_dir(case.work.join(".vscode")).unwrap();
    case.write(".vscode/tasks.json", "x");
    let [second, third, fourth, fifth] = [(); 4].map(|()| case.begin());
    // It is left to the session that made it.
    assert!(second.close("second").is_empty());
    case.write(".vscode/tasks.json", "y");
    assert_eq!(paths(&third.close("third")), [".vscode/tasks.json"]);
    assert_eq!(paths(&first.close("first")), [".envrc", ".vscode", "AGENTS.md"]);
    assert_eq!(case.read("AGENTS.md").as_deref(), Some("before"));
    // What is made again is new.
    case.write("AGENTS.md", "after");
    case.write(".envrc", "x");
    assert_eq!(paths(&fourth.close("fourth")), [".envrc", "AGENTS.md"]);
    case.write(".envrc", "x");
    drop(fifth);
    assert_eq!(paths(&case.settle()), [".envrc"]);
    assert_eq!(case.left(), [KEPT]);
}

#[test]
fn what_a_killed_session_made_is_settled_by_one_that_lived_beside_it() {
    let case = Case::new();
    let first = case.begin();
    case.write(".envrc", "x");
    let second = case.begin();
    drop(first);
    assert_eq!(paths(&second.close("second")), [".envrc"]);
    assert!(case.settle().is_empty());
}

#[test]
fn a_session_above_is_heeded_below() {
    let case = Case::new();
    let below =
        Case { _directory: tempfile::tempdir().unwrap(), work: case.work.join("sub"), place: case.place.join("s") };
    fs::create_dir_all(below.work.join(".cargo")).unwrap();
    fs::create_dir(below.work.join("old")).unwrap();
    below.write("AGENTS.md", "x");
    // Counts there only.
    below.write(".npmrc", "x");
    std::thread::sleep(Duration::from_millis(50));
    let above = case.begin();
    below.write(".cargo/config.toml", "x");
    let mut journals = case.journals();
    journals.settle("s").unwrap();
    let mut own = below.journals();
    own.settle("s").unwrap();
    let journal = own.begin(&Scan::of(&below.work), &[journals]).unwrap();
    drop(above);
    assert_eq!(paths(&journal.close("s")), [".cargo/config.toml"]);
}

#[test]
fn an_original_is_put_back_wherever_zwinger_was_killed() {
    for step in 0..4 {
        let case = Case::new();
        case.write("AGENTS.md", "before");
        let journal = case.begin();
        case.write("AGENTS.md", "after");
        case.write(".envrc", "x");
        let kept = case.place.join("quarantine/killed");
        fs::create_dir_all(&kept).unwrap();
        fs::set_permissions(&kept, Permissions::from_mode(0o700)).unwrap();
        let place = journal.place.as_ref().unwrap();
        if step > 0 {
            place.written.note(&Note::Moving("AGENTS.md".into(), kept.join("AGENTS.md").into())).unwrap();
        }
        if step > 1 {
            fs::rename(case.work.join("AGENTS.md"), kept.join("AGENTS.md")).unwrap();
        }
        if step > 2 {
            case.write("AGENTS.md", "before");
        }
        drop(journal);
        let settled = case.settle();
        assert_eq!(case.read("AGENTS.md").as_deref(), Some("before"), "{step} {settled:?}");
        assert_eq!(case.read(".envrc"), None);
        let mut moved = paths(&settled);
        moved.sort();
        assert_eq!(moved, [".envrc", "AGENTS.md"], "{step} {settled:?}");
        for quarantined in &settled.quarantined {
            let content = if quarantined.path.ends_with("AGENTS.md") { "after" } else { "x" };
            assert_eq!(fs::read_to_string(quarantined.kept_at.as_ref().unwrap()).unwrap(), content, "{step}");
        }
        assert!(case.settle().is_empty());
    }
}

#[test]
fn what_a_person_saw_stays_as_it_was_seen() {
    for (content, mode, killed, stays) in [
        ("seen", 0o644, false, true),
        ("seen", 0o644, true, true),
        ("other", 0o644, false, false),
        ("other", 0o644, true, false),
        ("seen", 0o755, false, false),
    ] {
        let case = Case::new();
        case.write("GEMINI.md", "before");
        let journal = case.begin();
        for name in ["AGENTS.md", "GEMINI.md", ".vscode/tasks.json"] {
            journal.approve(Path::new(name), b"seen before").unwrap();
            journal.approve(Path::new(name), b"seen").unwrap();
        }
        fs::create_dir(case.work.join(".vscode")).unwrap();
        for name in ["AGENTS.md", "GEMINI.md", ".vscode/tasks.json"] {
            case.write(name, content);
            fs::set_permissions(case.work.join(name), Permissions::from_mode(mode)).unwrap();
        }
        // What nobody saw does not stay for lying beside it.
        case.write(".vscode/settings.json", "seen");
        let settled = match killed {
            false => journal.close("s"),
            true => {
                drop(journal);
                case.settle()
            }
        };
        let gone =
            if stays { [".vscode/settings.json"].to_vec() } else { [".vscode", "AGENTS.md", "GEMINI.md"].to_vec() };
        assert_eq!(paths(&settled), gone, "{content} {mode:o} {settled:?}");
        assert_eq!(case.read("AGENTS.md").is_some(), stays);
        assert_eq!(case.read("GEMINI.md").as_deref(), Some(if stays { "seen" } else { "before" }));
    }
}

#[test]
fn notes_of_an_older_session_are_no_notes() {
    let case = Case::new();
    let journal = case.begin();
    journal.approve(Path::new("AGENTS.md"), b"seen").unwrap();
    assert!(journal.close("s").is_empty());
    drop(case.begin());
    case.write("AGENTS.md", "seen");
    assert_eq!(paths(&case.settle()), ["AGENTS.md"]);
}

#[test]
fn a_workspace_that_is_gone_is_said_once() {
    let case = Case::new();
    let journal = case.begin();
    fs::rename(&case.work, case.work.with_file_name("moved")).unwrap();
    let settled = journal.close("s");
    assert!(settled.unseen.len() == 1 && settled.unseen[0].contains("not there any more"), "{settled:?}");
    assert!(case.settle().is_empty());
}

#[test]
fn a_closed_journal_that_is_still_locked_is_no_living_one() {
    let case = Case::new();
    assert!(case.begin().close("s").is_empty());
    let file = File::options().read(true).write(true).open(case.place.join(KEPT)).unwrap();
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(case.begin().close("s").is_empty());
    assert_eq!(case.left(), [KEPT]);
}
