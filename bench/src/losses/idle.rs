//! [`IdleProcess`]: a second process with the same store, which does nothing until it is asked for all keys.
//!
//! It is this program. One line each way: numbers of keys in, counts out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tokio::runtime::Runtime;

use super::retries::{Found, Written, ask_again};
use super::set_ups::Location;

const READY: &str = "ready";

/// A running process. Dropping it ends it.
pub(super) struct IdleProcess {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl IdleProcess {
    /// Starts it, and waits until its store is open.
    pub(super) fn start(location: &Location) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("idle").args(location.args()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().context("it was piped")?;
        let stdout = BufReader::new(child.stdout.take().context("it was piped")?);
        let mut process = Self { child, stdin, stdout };
        let line = process.read_line()?;
        ensure!(line.trim_end() == READY, "the idle process did not start");
        Ok(process)
    }

    /// Lets it ask for all keys.
    pub(super) fn ask_again(&mut self, written: &Written) -> Result<Found> {
        let line = serde_json::to_string(&(&written.recorded, &written.begun))?;
        writeln!(self.stdin, "{line}")?;
        let (lost, ran_again, ran_twice, is_closed) = serde_json::from_str(&self.read_line()?)?;
        Ok(Found { lost, ran_again, ran_twice, is_closed })
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the idle process has ended");
        Ok(line)
    }
}

impl Drop for IdleProcess {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Serves as the idle process, until standard input ends.
pub(crate) fn serve(location: &Location) -> Result<()> {
    let runtime = Runtime::new()?;
    let store = runtime.block_on(location.open())?;
    println!("{READY}");
    // The store's own tasks go on meanwhile, and after the answer: the writer still counts on this process then.
    for line in std::io::stdin().lines() {
        let (recorded, begun) = serde_json::from_str(&line?)?;
        let found = runtime.block_on(ask_again(&*store, &Written { recorded, begun }))?;
        let counts = (found.lost, found.ran_again, found.ran_twice, found.is_closed);
        println!("{}", serde_json::to_string(&counts)?);
    }
    Ok(())
}
