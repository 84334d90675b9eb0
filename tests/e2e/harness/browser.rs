//! A real browser, without a window.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// An open browser. Dropping it closes it.
pub(crate) struct Browser {
    child: Child,
    _folder: TempDir,
}

impl Browser {
    /// Opens `url` in a browser that knows nothing yet and asks nobody anything.
    pub(crate) fn open(url: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let child = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--disable-quic", "--no-proxy-server"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(url)
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its helpers are of the same group, and end with it.
            .process_group(0)
            .spawn()
            .expect("chromium is there: this test needs the package chromium");
        Self { child, _folder: folder }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _gone = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _gone = self.child.wait();
    }
}
