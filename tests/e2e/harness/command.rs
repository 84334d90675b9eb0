//! Commands that come to an end by themselves.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use super::eventually;

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end, which must come soon: a gateway that serves where it should refuse
/// to start fails the test.
pub(crate) fn run_to_end(mut command: Command) -> Ended {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = command.spawn();
    let mut running = Running(spawned.unwrap_or_else(|error| {
        panic!("{} does not start: {error}", command.get_program().display())
    }));
    let stdout = read(running.0.stdout.take().expect("piped"));
    let stderr = read(running.0.stderr.take().expect("piped"));
    let status = eventually("the end of the command", || running.0.try_wait().expect("ours"));
    let text = |reading: JoinHandle<String>| reading.join().expect("readable");
    Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// Killed when dropped, should the test fail before its end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn read(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("readable");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
