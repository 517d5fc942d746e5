//! On which kind of file system a path lies.
//!
//! SQLite's write-ahead log needs shared memory and reliable locks, which network file systems do not give. The type
//! is read from `/proc/self/mountinfo` rather than from `statfs` numbers: it needs no unsafe code, and the names are
//! those an administrator knows. Where that file cannot be read, nothing is refused.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Types whose locks or shared memory do not work between hosts, or not at all. `fuseblk` (NTFS, exFAT on a local
/// disk) is absent on purpose; every other `fuse.*` is refused, as nothing is known about what is behind it.
const NETWORK: [&str; 18] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb2",
    "smb3",
    "smbfs",
    "lustre",
    "beegfs",
    "gpfs",
    "ceph",
    "afs",
    "9p",
    "glusterfs",
    "ocfs2",
    "gfs2",
    "pvfs2",
    "orangefs",
    "fuse",
];

/// The type of the network file system `path` lies on; `None` for a local one, or when it cannot be told.
pub(crate) fn network_kind(path: &Path) -> Option<String> {
    // A file that does not exist yet lies where its folder does.
    let absolute = std::fs::canonicalize(path).or_else(|_| std::fs::canonicalize(folder_of(path))).ok()?;
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    network_kind_in(&absolute, &mounts)
}

/// The folder that holds `path`.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn network_kind_in(absolute: &Path, mountinfo: &[u8]) -> Option<String> {
    let mut best: Option<(usize, String)> = None;
    for line in mountinfo.split(|byte| *byte == b'\n') {
        let Some((mount_point, kind)) = parse(line) else { continue };
        let depth = mount_point.components().count();
        // A later mount on the same point hides the earlier one, hence `>=`.
        if absolute.starts_with(&mount_point) && best.as_ref().is_none_or(|(deepest, _)| depth >= *deepest) {
            best = Some((depth, kind));
        }
    }
    best.map(|(_, kind)| kind).filter(|kind| NETWORK.contains(&kind.as_str()) || kind.starts_with("fuse."))
}

/// Mount point and type from one line: `36 35 98:0 /root /mount/point options optional... - type source options`.
fn parse(line: &[u8]) -> Option<(PathBuf, String)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mount_point = fields.nth(4)?;
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some((PathBuf::from(OsString::from_vec(unescape(mount_point))), String::from_utf8_lossy(kind).into_owned()))
}

/// The kernel writes space, tab, newline and backslash as `\040` and so on.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"27 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
        30 27 0:44 / /home/shared\\040disk rw shared:5 - nfs4 server:/x rw\n\
        31 30 8:2 / /home/shared\\040disk/scratch rw - xfs /dev/sdb rw\n\
        32 27 0:45 / /net rw - autofs systemd-1 rw\n\
        33 27 0:46 / /net rw - fuse.sshfs host: rw\n\
        34 27 8:3 / /usb rw - fuseblk /dev/sdc1 rw\n\
        broken line\n";

    #[test]
    fn the_deepest_last_mount_decides() {
        for (path, kind) in [
            ("/tmp/a.tune", None),
            ("/home/shared disk/a.tune", Some("nfs4")),
            ("/home/shared disk/scratch/a.tune", None),
            ("/home/shared diskette/a.tune", None),
            ("/net/a.tune", Some("fuse.sshfs")),
            ("/usb/a.tune", None),
        ] {
            assert_eq!(network_kind_in(Path::new(path), MOUNTS).as_deref(), kind, "{path}");
        }
    }

    #[test]
    fn this_machine_has_a_local_place() {
        assert_eq!(network_kind(Path::new("/proc/self/status")), None);
    }
}
