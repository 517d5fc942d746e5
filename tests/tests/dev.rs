//! `./dev` on machines that lack something: a stand-in machine is a folder of small programs that is the whole `PATH`.

#![allow(clippy::disallowed_methods, reason = "the program started is the thing under test")]

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A machine: what `id -u` says, the installed packages, what apt-get knows, and whether there are cargo and sudo.
struct Machine {
    user: u32,
    packages: &'static str,
    known: &'static str,
    cargo: bool,
    sudo: bool,
}

const BARE: Machine = Machine { user: 0, packages: "", known: "", cargo: true, sudo: false };

const ALL_BUT_LLVM: &str = "mesa-vulkan-drivers libvulkan1 build-essential pkg-config";

impl Machine {
    /// Runs `./dev VERB` on it. Programs of ours append what they were called with to `calls`.
    fn dev(&self, verb: &str, llvm: Option<&Path>) -> (Output, String) {
        self.dev_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../dev"), verb, llvm)
    }

    /// The same with another copy of the script.
    fn dev_of(&self, dev: &Path, verb: &str, llvm: Option<&Path>) -> (Output, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let (bin, calls) = (folder.path().join("bin"), folder.path().join("calls"));
        std::fs::create_dir(&bin).expect("a folder");
        for program in ["sh", "dirname", "mktemp", "mkdir", "rm", "cat", "grep", "sed", "env"] {
            let real = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(program));
            symlink(real.iter().find(|path| path.exists()).expect("a system program"), bin.join(program))
                .expect("a link");
        }
        let note = format!("echo \"${{0##*/}} $*\" >> {}", calls.display());
        let script = |name: &str, body: &str| {
            let body = format!("#!/bin/sh\n{body}\n");
            let mut file = std::fs::File::create(bin.join(name)).expect("a program");
            file.write_all(body.as_bytes()).expect("a program");
            file.set_permissions(std::fs::Permissions::from_mode(0o755)).expect("a program");
        };
        script("id", &format!("echo {}", self.user));
        let installed = folder.path().join("installed");
        std::fs::write(&installed, self.packages.replace(' ', "\n") + "\n").expect("a table");
        script(
            "dpkg-query",
            &format!("for p; do :; done; grep -qx \"$p\" {} && printf installed", installed.display()),
        );
        script(
            "apt-cache",
            &format!(
                "for p; do :; done; case \" {} \" in *\" $p \"*) echo '  Candidate: 1:22.1.8' ;; esac",
                self.known
            ),
        );
        script("apt-get", &note);
        if self.cargo {
            script("cargo", &note);
        }
        if self.sudo {
            script("sudo", &format!("{note}\n[ \"$1\" != -n ] || shift\n\"$@\""));
        }
        let mut command = Command::new(dev);
        command.arg(verb).env_clear().env("PATH", &bin).env("HOME", folder.path()).stdin(Stdio::null());
        // A prefix that the machine under test does not have; what lies in /usr/lib is the real machine's.
        if let Some(prefix) = llvm {
            command.env("LLVM_SYS_221_PREFIX", prefix);
        }
        let output = command.output().expect("./dev starts");
        (output, std::fs::read_to_string(calls).unwrap_or_default())
    }
}

/// A prefix whose `llvm-config` says `version`.
fn llvm(folder: &Path, version: &str) {
    std::fs::create_dir_all(folder.join("bin")).expect("a folder");
    let config = folder.join("bin/llvm-config");
    std::fs::write(&config, format!("#!/bin/sh\necho {version}\n")).expect("a program");
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o755)).expect("a program");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_cargo_it_says_how_to_get_rust() {
    let (output, calls) = Machine { cargo: false, ..BARE }.dev("test", None);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("rustup"), "{}", said(&output));
    assert_eq!(calls, "");
}

#[test]
fn missing_packages_are_installed_by_name() {
    let folder = tempfile::tempdir().unwrap();
    llvm(folder.path(), "22.1.8");
    let (output, calls) = Machine { packages: "libvulkan1 pkg-config", ..BARE }.dev("lint", Some(folder.path()));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let wanted = "apt-get update\napt-get install -y --no-install-recommends mesa-vulkan-drivers build-essential\n";
    assert!(calls.starts_with(wanted), "{calls}");
}

#[test]
fn nothing_is_asked_of_apt_when_nothing_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    llvm(folder.path(), "22.1.8");
    let (output, calls) = Machine { packages: ALL_BUT_LLVM, ..BARE }.dev("test", Some(folder.path()));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(calls, "cargo test --workspace\n");
}

#[test]
fn another_user_goes_through_sudo_or_is_told_the_command() {
    let folder = tempfile::tempdir().unwrap();
    llvm(folder.path(), "22.1.8");
    let user = Machine { user: 1000, packages: "libvulkan1 pkg-config build-essential", ..BARE };
    let (output, calls) = user.dev("test", Some(folder.path()));
    assert_eq!(output.status.code(), Some(2));
    let command = "apt-get install -y --no-install-recommends mesa-vulkan-drivers\n";
    assert!(said(&output).ends_with(command), "{}", said(&output));
    assert_eq!(calls, "");

    let (output, calls) = Machine { sudo: true, ..user }.dev("test", Some(folder.path()));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(calls.contains("sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install"), "{calls}");
}

#[test]
fn another_llvm_than_22_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    llvm(folder.path(), "19.1.7");
    let (output, _) = Machine { packages: ALL_BUT_LLVM, ..BARE }.dev("test", Some(folder.path()));
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("no LLVM 22"), "{}", said(&output));
}

#[test]
fn where_no_llvm_22_is_packaged_it_says_how_to_get_it() {
    // `/usr/lib/llvm-22` is the real machine's, so the stand-in looks elsewhere for the packaged one.
    let elsewhere = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../dev")).unwrap();
    let script = elsewhere.path().join("dev");
    std::fs::write(&script, text.replace("/usr/lib/llvm-22", "/nonexistent/llvm-22")).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (known, wanted) in [("", "has no package llvm-22-dev"), ("llvm-22-dev", "LLVM 22 is not installed")] {
        let machine = Machine { packages: ALL_BUT_LLVM, known, ..BARE };
        let (output, _) = machine.dev_of(&script, "test", None);
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(wanted), "{}", said(&output));
    }
}

#[test]
fn wrong_usage_is_told_the_verbs() {
    let (output, _) = BARE.dev("tset", None);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("usage: ./dev VERB") && said(&output).contains("tset"), "{}", said(&output));
    let (output, _) = BARE.dev("--help", None);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("bless"));
}
