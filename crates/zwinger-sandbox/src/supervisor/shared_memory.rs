//! Memory that is a process's only while it is mapped, and there without that: files of memfd_create(2) and System V segments.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::Pid;

/// Descriptors that one look takes: more would keep the supervisor from its deadline, a microsecond or two each.
const MOST: usize = 20_000;

/// What files in memory hold, each counted once whoever has it open.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    files: HashMap<(u64, u64), u64>,
    looked_at: usize,
}

impl OpenFiles {
    /// Adds those that a process has open, if it lets itself be looked at.
    pub(super) fn add(&mut self, pid: Pid) {
        let base = format!("/proc/{}", pid.as_raw_pid());
        self.add_table(Path::new(&base));
        // A first thread that has ended shows an empty table; the others still have theirs.
        if std::fs::read_dir(format!("{base}/fd")).map_or(true, |mut fds| fds.next().is_none()) {
            let threads = std::fs::read_dir(format!("{base}/task")).into_iter().flatten().flatten();
            threads.for_each(|thread| self.add_table(&thread.path()));
        }
    }

    fn add_table(&mut self, task: &Path) {
        for fd in std::fs::read_dir(task.join("fd")).into_iter().flatten().flatten() {
            self.looked_at += 1;
            if self.looked_at > MOST {
                return;
            }
            let is_in_memory =
                fd.path().read_link().is_ok_and(|to| to.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"));
            if let Some(file) = is_in_memory.then(|| fd.path().metadata().ok()).flatten() {
                // stat(2): blocks of 512 bytes.
                self.files.insert((file.dev(), file.ino()), file.blocks().saturating_mul(512));
            }
        }
    }

    /// More than there can be when there were too many to look at: what is not counted is not permitted.
    pub(super) fn bytes(&self) -> u64 {
        if self.looked_at > MOST { u64::MAX } else { self.files.values().sum() }
    }
}

/// Bytes of all System V segments of this IPC namespace, attached or not (sysvipc(7), proc(5)).
pub(super) fn segments() -> u64 {
    std::fs::read_to_string("/proc/sysvipc/shm").map(|table| segments_of(&table)).unwrap_or_default()
}

fn segments_of(table: &str) -> u64 {
    let mut lines = table.lines();
    let titles = lines.next().unwrap_or_default();
    let columns = ["rss", "swap"].map(|title| titles.split_whitespace().position(|found| found == title));
    let fields =
        lines.flat_map(|line| columns.into_iter().flatten().map(move |column| line.split_whitespace().nth(column)));
    fields.filter_map(|field| field?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_as_proc_writes_them() {
        let table = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      \
                     atime      dtime      ctime                   rss                  swap\n\
                     0          0   600             209715200     7     7      0     0     0     0     0          \
                     0          0          0             209715200                   4096\n\
                     0          1   600                  4096     7     7      1     0     0     0     0          \
                     0          0          0                  8192                      0\n";
        assert_eq!(segments_of(table), 209_715_200 + 4096 + 8192);
        assert_eq!(segments_of(""), 0);
    }

    #[test]
    fn a_file_in_memory_counts_once() {
        let file = rustix::fs::memfd_create("counted", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, &[1_u8; 1 << 16]).unwrap();
        let _again = file.try_clone().unwrap();
        let mut files = OpenFiles::default();
        files.add(rustix::process::getpid());
        files.add(rustix::process::getpid());
        let own = rustix::fs::fstat(&file).unwrap();
        assert_eq!(files.files.get(&(own.st_dev, own.st_ino)), Some(&(1 << 16)));
        assert!(files.bytes() >= 1 << 16);
    }
}
