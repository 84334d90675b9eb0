//! The examples do what the comments at their heads say.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tempfile::TempDir;

/// How long an example may take to say something.
const PATIENCE: Duration = Duration::from_secs(20);

/// An example's binary: cargo puts it beside the folder of the tests' own.
fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let path = test.ancestors().nth(2).expect("cargo's folders").join("examples").join(name);
    let source = format!("{}/examples/{name}.rs", env!("CARGO_MANIFEST_DIR"));
    let made = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    assert!(
        made(&path) >= made(Path::new(&source)),
        "{} is missing or old: a whole `cargo test -p selfsame` builds it, one for some tests does not",
        path.display()
    );
    path
}

/// What an example prints from its start to its end.
fn output(name: &str, folder: &Path) -> Vec<String> {
    let output = Command::new(binary(name)).current_dir(folder).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn count(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

/// A payments service, in a process that can be killed.
struct Service {
    child: Child,
    lines: Receiver<String>,
    address: String,
}

impl Service {
    fn start(name: &str, folder: &Path) -> Self {
        let mut child = Command::new(binary(name))
            .arg("127.0.0.1:0")
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (said, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        let mut service = Self { child, lines, address: String::new() };
        let listening = service.next_line();
        service.address = listening.strip_prefix("listening on ").expect("an address").to_owned();
        service
    }

    fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line")
    }

    /// The request at the example's head.
    fn charge(&self) -> Command {
        let mut curl = Command::new("curl");
        let url = format!("{}/charges", self.address);
        curl.args(["-isS", &url, "-H", "Idempotency-Key: order-1", "-d", "20"]);
        curl.stdout(Stdio::piped()).stderr(Stdio::piped());
        curl
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn curl(mut command: Command) -> String {
    let output = command.output().expect("curl is there: this test needs the package curl");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

#[test]
fn an_axum_service_killed_in_the_middle_goes_on_where_it_stopped() {
    let folder = TempDir::new().expect("a temporary folder");
    let service = Service::start("axum", folder.path());
    let mut client = service.charge().spawn().expect("curl is there: this test needs curl");
    assert_eq!(service.next_line(), "attempt 1: charging 20");
    assert_eq!(service.next_line(), "attempt 1: charged; sending the receipt takes a moment");
    drop(service);
    assert!(!client.wait().expect("ours").success(), "the first client got no answer");

    let service = Service::start("axum", folder.path());
    let answer = curl(service.charge());
    assert!(answer.starts_with("HTTP/1.1 201 Created\n"), "{answer}");
    assert!(answer.ends_with("\n\ncharged 20\n"), "{answer}");
    assert_eq!(service.next_line(), "attempt 2: charged; sending the receipt takes a moment");
    assert_eq!(service.next_line(), "attempt 2: receipt sent");

    let again = curl(service.charge());
    assert!(again.contains("\nidempotent-replayed: true\n"), "{again}");
    assert!(again.ends_with("\n\ncharged 20\n"), "{again}");
    assert!(service.lines.try_recv().is_err(), "nothing ran");
}

#[test]
fn a_tonic_service_charges_once_for_a_key() {
    let folder = TempDir::new().expect("a temporary folder");
    let service = Service::start("tonic", folder.path());
    let call = |amount: &str| {
        let client =
            Command::new(binary("tonic")).args(["order-1", amount, &service.address]).output();
        String::from_utf8_lossy(&client.expect("it starts").stdout).into_owned()
    };
    assert_eq!(call("20"), "charged 20, replayed: false\n");
    assert_eq!(call("20"), "charged 20, replayed: true\n");
    let other = call("21");
    assert!(other.starts_with("InvalidArgument: This key was used for another request"), "{other}");
    assert_eq!(service.next_line(), "attempt 1: charging 20");
    assert!(service.lines.try_recv().is_err(), "nothing else ran");
}

#[test]
fn a_webhook_is_handled_once_however_often_it_is_delivered() {
    let folder = TempDir::new().expect("a temporary folder");
    let lines = output("webhook", folder.path());
    assert_eq!(count(&lines, "delivered evt_1: 200 OK"), 3, "{lines:?}");
    assert_eq!(count(&lines, "delivered evt_2: 200 OK"), 1, "{lines:?}");
    for event in ["evt_1", "evt_2"] {
        assert_eq!(count(&lines, &format!("handling {event}")), 1, "{lines:?}");
    }
}

#[test]
fn a_message_that_comes_again_is_not_booked_again() {
    let folder = TempDir::new().expect("a temporary folder");
    let lines = output("queue", folder.path());
    for message in ["msg-1", "msg-2"] {
        assert_eq!(count(&lines, &format!(" for {message}")), 1, "{lines:?}");
        for delivery in 1..=2 {
            let booked = format!("{message}, delivery {delivery}: booked as entry-{message}");
            assert_eq!(count(&lines, &booked), 1, "{lines:?}");
        }
    }
}

#[test]
fn a_mail_goes_out_once_though_the_job_runs_twice() {
    let folder = TempDir::new().expect("a temporary folder");
    let (first, again) = (output("email", folder.path()), output("email", folder.path()));
    for lines in [&first, &again] {
        for order in ["order-1", "order-2"] {
            assert_eq!(count(lines, &format!("{order}: mail-for-{order}")), 1, "{lines:?}");
        }
    }
    assert_eq!((count(&first, "sending to"), count(&again, "sending to")), (2, 0));
}
