//! File requests, answered beneath the workspace's root.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

use zwinger_sandbox::{HostPath, PathError, Plan, Root};

use super::wire::{Hash, ListedEntry, MAX_CONTENT, Present, Refusal, Request, Response};

/// Entries of one directory that are looked at, and entries that one answer names.
const MAX_LISTED: usize = 100_000;
const MAX_ENTRIES: usize = 10_000;

/// Entries of a directory that are compared with a name that is not there, and how much of both must be the same (of 1).
const MAX_COMPARED: usize = 1_000;
const SIMILAR: f32 = 0.65;

/// Bytes of a file that is read or replaced at most.
const MAX_FILE: u64 = 1 << 30;

/// The workspace with what the walls keep from file tools in it, by paths beneath it.
pub(super) struct Place {
    pub(super) root: Root,
    /// Hidden.
    secrets: Vec<PathBuf>,
    /// Kept as it is, with all below it.
    protected: Vec<PathBuf>,
}

impl Place {
    pub(super) fn of(plan: &Plan) -> io::Result<Self> {
        // What cannot be made relative lies outside, where no path leads.
        let below = |path: &HostPath| Some(path.strip_prefix(&*plan.workspace).ok()?.to_path_buf());
        let pins = plan.mounts.iter().flat_map(|mounts| &mounts.pins).filter(|pin| !pin.writable);
        Ok(Self {
            root: Root::open_ambient(&plan.workspace)?,
            secrets: plan.secrets.iter().filter_map(below).collect(),
            protected: pins.filter_map(|pin| below(&pin.path)).collect(),
        })
    }
}

/// Does what a request for files asks.
pub(super) fn answer(place: &Place, request: Request) -> Response {
    let Place { root, secrets, .. } = place;
    let named = match &request {
        Request::Read { path, .. }
        | Request::List { path, .. }
        | Request::Directory { path }
        | Request::Inspect { path, .. }
        | Request::Write { path, .. } => Some(path.clone()),
        Request::Settle { .. } | Request::Run { .. } | Request::Cancel { .. } => None,
    };
    if named.as_ref().is_some_and(|path| is_hidden(root, secrets, path)) {
        return Response::Refused(Refusal::Hidden);
    }
    let done = match request {
        Request::Read { path, offset, lines, bytes } => {
            root.open_file(&path).and_then(bounded).and_then(|file| Ok(read_lines(file, offset, lines, bytes)?))
        }
        Request::List { path, depth } => list(root, &path, depth),
        Request::Directory { path } => root.open_directory(&path).and_then(|_| {
            let path = root.locate(&path)?;
            Ok(Response::Directory(if path.as_os_str().is_empty() { ".".into() } else { path.into() }))
        }),
        Request::Inspect { path, existing } => inspect(place, &path, existing),
        Request::Write { path, content, base } => {
            root.write(&path, &content, |old| Ok(hash_of(old)? == base)).map(|()| Response::Written)
        }
        // The serving loop keeps these for itself.
        Request::Settle { .. } | Request::Run { .. } | Request::Cancel { .. } => {
            Ok(Response::Refused(Refusal::Other("not a request for files".into())))
        }
    };
    done.unwrap_or_else(|error| {
        Response::Refused(match refusal(error) {
            Refusal::NotFound(_) => Refusal::NotFound(named.and_then(|path| similar_to(place, &path))),
            other => other,
        })
    })
}

/// What is there under a name that may have been meant.
fn similar_to(place: &Place, path: &Path) -> Option<HostPath> {
    let name = path.file_name()?.to_str()?.to_lowercase();
    let parent = path.parent()?;
    let listed = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let entries = place.root.list(listed, MAX_COMPARED).ok()?;
    let names: Vec<_> = entries.iter().filter_map(|entry| Some((entry.name.to_str()?.to_lowercase(), entry))).collect();
    let known: Vec<_> = names.iter().map(|(name, _)| name.as_str()).collect();
    let [closest] = similar::get_close_matches(name.as_str(), &known, 1, SIMILAR).try_into().ok()?;
    let (_, entry) = names.iter().find(|(name, _)| name == closest)?;
    let path = parent.join(&entry.name);
    (!is_hidden(&place.root, &place.secrets, &path)).then(|| path.into())
}

/// Lists the directory and, below it, those that are no links.
fn list(root: &Root, path: &Path, depth: u32) -> Result<Response, PathError> {
    let mut entries: Vec<ListedEntry> = Vec::new();
    let mut more = false;
    // The last one is the next one, so that what is in a directory stands behind it.
    let mut open: Vec<(PathBuf, bool, u32)> = Vec::new();
    let mut children = root.list(path, MAX_LISTED)?;
    let mut parent = PathBuf::new();
    let mut level = 1;
    loop {
        let found = children.into_iter().rev().map(|entry| (parent.join(&entry.name), entry.directory, level));
        open.extend(found);
        let Some((below, directory, of_level)) = open.pop() else { break };
        if entries.len() >= MAX_ENTRIES || open.len() > 2 * MAX_LISTED {
            more = true;
            break;
        }
        entries.push(ListedEntry { path: below.as_path().into(), directory });
        children = match directory && of_level < depth {
            // One that cannot be opened, or is a link by now, has its own line and no more.
            true => root.list(&path.join(&below), MAX_LISTED).unwrap_or_default(),
            false => Vec::new(),
        };
        (parent, level) = (below, of_level + 1);
    }
    Ok(Response::Listed { entries, more })
}

/// Whether a path leads to or below what is hidden. A courtesy with walls, which cover it; without walls all that there is.
fn is_hidden(root: &Root, secrets: &[PathBuf], path: &Path) -> bool {
    // What cannot be resolved fails by itself.
    let resolved = || root.locate(path).or_else(|_| root.resolve(path)).ok();
    !secrets.is_empty() && resolved().is_some_and(|path| secrets.iter().any(|secret| path.starts_with(secret)))
}

/// Refuses a file that cannot be read through in reasonable time, such as a sparse one of terabytes.
fn bounded(file: File) -> Result<File, PathError> {
    match file.metadata()?.len() {
        ..=MAX_FILE => Ok(file),
        size => Err(io::Error::other(format!("it is {size} bytes long, more than {MAX_FILE}")).into()),
    }
}

fn hash_of(file: Option<&mut File>) -> io::Result<Option<Hash>> {
    let Some(file) = file else { return Ok(None) };
    file.rewind()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(Some(*hasher.finalize().as_bytes()))
}

fn inspect(Place { root, protected, .. }: &Place, path: &Path, existing: bool) -> Result<Response, PathError> {
    // Says now, before anyone is asked, whether a write could ever succeed, and where it would go.
    let path = match root.resolve(path) {
        Err(PathError::Io(error)) if error.kind() == io::ErrorKind::NotFound && !existing => {
            return Ok(Response::Refused(Refusal::NoParent));
        }
        resolved => resolved?,
    };
    if protected.iter().any(|protected| path.starts_with(protected)) {
        return Ok(Response::Refused(Refusal::Protected));
    }
    let mut file = match root.open_file(&path).and_then(bounded) {
        Ok(file) => file,
        Err(PathError::Io(error)) if error.kind() == io::ErrorKind::NotFound && !existing => {
            return Ok(Response::Inspected { path: path.into(), present: None });
        }
        Err(error) => return Err(error),
    };
    let content = zwinger_sandbox::read_up_to(&mut file, MAX_CONTENT)?;
    let hash = match &content {
        Some(content) => Some(*blake3::hash(content).as_bytes()),
        None => hash_of(Some(&mut file))?,
    };
    Ok(Response::Inspected { path: path.into(), present: hash.map(|hash| Present { hash, content }) })
}

fn read_lines(file: File, offset: u64, lines: u64, bytes: u64) -> io::Result<Response> {
    let size = file.metadata()?.len();
    let mut reader = BufReader::new(file);
    let mut before = 0;
    while before + 1 < offset && reader.skip_until(b'\n')? > 0 {
        before += 1;
    }
    let bytes = usize::try_from(bytes).unwrap_or(MAX_CONTENT).min(MAX_CONTENT);
    let mut content = Vec::new();
    let mut read = 0;
    let mut more = false;
    while read < lines {
        let before = content.len();
        let room = (bytes - before) as u64;
        let line = io::Read::take(&mut reader, room).read_until(b'\n', &mut content)?;
        if line == 0 {
            more = room == 0 && !reader.fill_buf()?.is_empty();
            break;
        }
        read += 1;
    }
    more = more || (read == lines && !reader.fill_buf()?.is_empty());
    let binary = content.contains(&0);
    Ok(Response::Read { content, before, lines: read, more, binary, size })
}

pub(super) fn refusal(error: PathError) -> Refusal {
    match error {
        PathError::Outside => Refusal::Outside,
        PathError::Special(kind) => Refusal::Special(kind.to_owned()),
        PathError::Directory => Refusal::Directory,
        PathError::NotADirectory => Refusal::NotADirectory,
        PathError::Changed => Refusal::Changed,
        PathError::NotAPath => Refusal::Other("not a path".into()),
        PathError::Io(error) => match error.kind() {
            io::ErrorKind::NotFound => Refusal::NotFound(None),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Refusal::NotPermitted(error.to_string())
            }
            _ => Refusal::Other(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8], offset: u64, lines: u64, bytes: u64) -> (Vec<u8>, u64, bool) {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, content).unwrap();
        file.rewind().unwrap();
        match read_lines(file, offset, lines, bytes).unwrap() {
            Response::Read { content, lines, more, .. } => (content, lines, more),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_are_counted_from_one_and_bounded() {
        let text = b"one\ntwo\nthree\nfour";
        assert_eq!(read(text, 1, 10, 1000), (text.to_vec(), 4, false));
        assert_eq!(read(text, 2, 2, 1000), (b"two\nthree\n".to_vec(), 2, true));
        assert_eq!(read(text, 4, 1, 1000), (b"four".to_vec(), 1, false));
        assert_eq!(read(text, 9, 5, 1000), (vec![], 0, false));
        assert_eq!(read(text, 1, 10, 5), (b"one\nt".to_vec(), 2, true));
        assert_eq!(read(b"", 1, 10, 5), (vec![], 0, false));
    }
}
