//! Exclusive use of a physical resource, across processes.
//!
//! A clock that runs while another tuner compiles or times on the same processor measures the other tuner. So each
//! resource has a lock file, held from before compiling until after timing. `flock` locks belong to the open file: the
//! kernel frees them when the holder dies, however it dies, and two handles of one process exclude each other too.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::Error;

/// A resource that can be held.
#[derive(Debug)]
pub struct Resource {
    name: String,
    path: PathBuf,
}

/// Proof that the resource is held; dropping it lets go.
#[derive(Debug)]
pub struct Held {
    file: File,
}

impl Resource {
    /// Opens the lock file of `name` in this user's runtime folder.
    ///
    /// # Errors
    ///
    /// [`Error::ResourceFile`] when the file cannot be created, or its folder belongs to someone else.
    pub fn open(name: &str) -> Result<Resource, Error> {
        let folder = runtime_folder();
        Resource::open_in(&folder, name)
    }

    /// Opens the lock file of `name` in `folder`, creating the folder where needed.
    ///
    /// # Errors
    ///
    /// [`Error::ResourceFile`] as [`Resource::open`].
    pub fn open_in(folder: &Path, name: &str) -> Result<Resource, Error> {
        let safe: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = folder.join(format!("{safe}.lock"));
        let failed = |source| Error::ResourceFile { path: path.clone(), source };
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(failed)?;
        // In /tmp anybody could have made the folder first and could then hold our locks.
        // SAFETY: `geteuid` only reads.
        let own = unsafe { libc::geteuid() };
        let owner = fs::metadata(folder).map_err(failed)?.uid();
        if owner != own {
            let source = std::io::Error::other(format!("its folder belongs to user {owner}"));
            return Err(Error::ResourceFile { path, source });
        }
        let resource = Resource { name: name.into(), path: path.clone() };
        resource.open_file().map_err(failed)?;
        Ok(resource)
    }

    /// Waits until nobody else holds the resource, at most `patience`, and holds it. Waiting is logged with the name of
    /// the holder.
    ///
    /// # Errors
    ///
    /// [`Error::ResourceBusy`] when the wait was too long, [`Error::ResourceFile`] when the file cannot be locked.
    pub fn hold(&self, patience: Duration) -> Result<Held, Error> {
        let failed = |source| Error::ResourceFile { path: self.path.clone(), source };
        // A description of its own, so that giving up a wait can never let go of a later hold.
        let file = self.open_file().map_err(failed)?;
        match lock(&file, libc::LOCK_EX | libc::LOCK_NB) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let holder = self.holder();
                tracing::info!(resource = %self.name, %holder, "waiting for another process");
                // A blocking lock queues fairly; polling would starve beside a tuner that lets go for microseconds.
                let (sender, receiver) = channel();
                let waiting = file.try_clone().map_err(failed)?;
                std::thread::spawn(move || {
                    let locked = lock(&waiting, libc::LOCK_EX);
                    // Where nobody listens any more, closing the last descriptor lets go.
                    let _ = sender.send(locked);
                });
                match receiver.recv_timeout(patience) {
                    Ok(locked) => locked.map_err(failed)?,
                    Err(_) => {
                        let waited_s = patience.as_secs();
                        return Err(Error::ResourceBusy { resource: self.name.clone(), holder, waited_s });
                    }
                }
            }
            Err(source) => return Err(failed(source)),
        }
        // Only for the message of those who wait; a stale or missing name harms nothing.
        let mut note = &file;
        let _ = file.set_len(0).and_then(|()| note.rewind()).and_then(|()| write!(note, "{}", std::process::id()));
        Ok(Held { file })
    }

    fn open_file(&self) -> std::io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.path)
    }

    /// Who holds the resource, as far as the file tells.
    fn holder(&self) -> String {
        let mut text = String::new();
        let read = self.open_file().and_then(|file| file.take(20).read_to_string(&mut text));
        match (read, text.trim().parse::<u32>()) {
            (Ok(_), Ok(id)) => {
                let command = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
                format!("process {id} {}", command.trim()).trim_end().to_string()
            }
            _ => "another process".into(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Said outright: a worker that is being forked right now has a copy of the descriptor until its exec.
        let _ = lock(&self.file, libc::LOCK_UN);
    }
}

fn lock(file: &File, how: i32) -> std::io::Result<()> {
    loop {
        // SAFETY: the descriptor is open for the duration of the call.
        if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// `$XDG_RUNTIME_DIR/tilewright`, or a folder of this user in `/tmp`. The same for every process of the user, whatever
/// its `TMPDIR`.
fn runtime_folder() -> PathBuf {
    // SAFETY: `geteuid` only reads.
    let user = unsafe { libc::geteuid() };
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() && folder.is_dir() => folder.join("tilewright"),
        _ => PathBuf::from(format!("/tmp/tilewright-{user}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_exclude_each_other_and_the_wait_names_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let first = Resource::open_in(folder.path(), "host-cpu").unwrap();
        let second = Resource::open_in(folder.path(), "host-cpu").unwrap();
        let other = Resource::open_in(folder.path(), "gpu-0").unwrap();
        let held = first.hold(Duration::ZERO).unwrap();
        drop(other.hold(Duration::ZERO).unwrap());
        let busy = second.hold(Duration::from_millis(20)).unwrap_err();
        assert!(busy.to_string().contains(&format!("process {}", std::process::id())), "{busy}");
        let waiter = std::thread::spawn(move || second.hold(Duration::from_secs(10)).map(drop));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        drop(held);
        waiter.join().unwrap().unwrap();
        drop(first.hold(Duration::from_secs(1)).unwrap());
    }
}
