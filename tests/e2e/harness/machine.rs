//! A machine whose wall clock may be wrong, whose disk may hang, and which may have been booted: as
//! far as one gateway can tell.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::binary;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What a gateway takes for its machine.
pub(crate) struct Machine {
    folder: TempDir,
    orders: File,
    boots: u32,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let source = folder.path().join("shim.c");
        fs::write(&source, include_str!("shim.c")).expect("written");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
        compiler.arg(folder.path().join("shim.so")).arg(&source).arg("-ldl");
        let compiled = compiler.status().expect("cc is there: this test needs a C compiler");
        assert!(compiled.success());
        let orders = File::create_new(folder.path().join("orders")).expect("made");
        orders.set_len(32).expect("made");
        let mut machine = Self { folder, orders, boots: 0 };
        machine.boot();
        machine
    }

    /// Sets the wall clock wrong by so many hours.
    pub(crate) fn set_clock(&self, hours: i64) {
        self.orders.write_all_at(&(hours * 3600).to_le_bytes(), 0).expect("written");
    }

    /// Has each read, write and sync of a file wait, or no longer.
    pub(crate) fn hang_disk(&self, is_hanging: bool) {
        self.orders.write_all_at(&i64::from(is_hanging).to_le_bytes(), 8).expect("written");
    }

    /// Has the disk refuse each write and each new file, or no longer.
    pub(crate) fn make_disk_read_only(&self, is_read_only: bool) {
        self.orders.write_all_at(&i64::from(is_read_only).to_le_bytes(), 16).expect("written");
    }

    /// Has each sync of a file of the log fail, or no longer.
    pub(crate) fn fail_syncs_of_log(&self, is_failing: bool) {
        self.orders.write_all_at(&i64::from(is_failing).to_le_bytes(), 24).expect("written");
    }

    /// Has a boot with another id, for commands from now on.
    pub(crate) fn boot(&mut self) {
        self.boots += 1;
        let id = format!("00000000-0000-4000-8000-{:012}\n", self.boots);
        fs::write(self.boot_id(), id).expect("written");
    }

    /// `selfsame serve` on this machine.
    pub(crate) fn serve(&self, config: &Path) -> Command {
        let mut command = self.run();
        command.args(["serve", "--config"]).arg(config);
        command
    }

    /// `selfsame` on this machine.
    pub(crate) fn run(&self) -> Command {
        let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
            .arg(self.boot_id())
            .arg(BOOT_ID)
            .args(["env", &format!("LD_PRELOAD={}", self.folder.path().join("shim.so").display())])
            .arg(binary().get_program())
            .env("SELFSAME_SHIM", self.folder.path().join("orders"));
        command
    }

    fn boot_id(&self) -> PathBuf {
        self.folder.path().join("boot_id")
    }
}
