//! Packages for programs in other languages, installed once and kept beside the build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A copy of a folder of the repository to run in, beside the build.
fn copied(folder: &str) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&to).expect("a folder beside the build");
    for entry in fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("it can be read");
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
    to
}

/// A copy of a folder with a program in Python, with its requirements in `venv`. No two tests may
/// share one.
pub(crate) fn with_python_packages(folder: &str) -> PathBuf {
    let folder = copied(folder);
    once(&folder, "requirements.txt", || {
        run(Command::new("python3").args(["-m", "venv", "--clear", "venv"]).current_dir(&folder));
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        let mut install = Command::new(folder.join("venv/bin/python"));
        run(install.args(pip).arg("requirements.txt").current_dir(&folder));
    });
    folder
}

/// The same for a program in JavaScript, with its packages in `node_modules`.
pub(crate) fn with_node_packages(folder: &str) -> PathBuf {
    let folder = copied(folder);
    once(&folder, "package.json", || {
        let quietly = ["--no-audit", "--no-fund", "--loglevel=error"];
        let flags = ["install", "--no-package-lock", "--ignore-scripts", "--prefer-offline"];
        run(Command::new("npm").args(flags).args(quietly).current_dir(&folder));
    });
    folder
}

/// Installs, unless that was done for the same list of packages.
fn once(folder: &Path, list: &str, install: impl FnOnce()) {
    let (list, done) = (fs::read(folder.join(list)).expect("a list"), folder.join("installed"));
    if fs::read(&done).is_ok_and(|installed| installed == list) {
        return;
    }
    install();
    fs::write(done, list).expect("noted");
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| {
        panic!("{} does not start: {error}", command.get_program().display())
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}:\n{said}", output.status);
}
