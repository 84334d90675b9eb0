//! Starts that must be refused: what is wrong is named, the exit code says so, nothing is started.

use std::net::TcpListener;
use std::path::Path;

use tempfile::TempDir;

use crate::harness::{Ended, Gateway, Ledger, binary, run_to_end};

/// `selfsame serve` with these flags, in a folder of its own, to its end.
fn serve(folder: &Path, flags: &[&str]) -> Ended {
    let mut command = binary();
    command.current_dir(folder).arg("serve").args(flags);
    run_to_end(command)
}

/// As [`serve`], with all it needs but what `flags` say.
fn serve_on(folder: &Path, flags: &[&str]) -> Ended {
    let mut all = vec!["--upstream", "http://127.0.0.1:1"];
    for (flag, value) in [("--listen", "127.0.0.1:0"), ("--admin", "127.0.0.1:0")] {
        if !flags.contains(&flag) {
            all.extend([flag, value]);
        }
    }
    all.extend(flags);
    serve(folder, &all)
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

/// One clear message, and no more: nobody wants a backtrace, or the same twice.
fn assert_says(ended: &Ended, parts: &[&str]) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.starts_with("selfsame: "), "{ended:?}");
    for part in parts {
        assert_eq!(ended.stderr.matches(part).count(), 1, "{part:?} in {ended:?}");
    }
}

#[test]
fn a_second_process_on_the_same_folder_is_told_who_has_it() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let store = gateway.data().display().to_string();

    let second = serve_on(gateway.folder(), &["--store", &format!("file:{store}")]);
    assert_says(&second, &[&store, "is in use by process ", "choose another folder"]);

    let answer = gateway.post("/charges").key("order-1").send();
    assert_eq!((answer.status, ledger.effects("order-1")), (201, 1), "the first is none the worse");
}

#[test]
fn a_store_that_cannot_be_written_is_named() {
    let folder = folder();
    let file = folder.path().join("a-file");
    std::fs::write(&file, "").expect("written");
    let in_the_way = [file.clone(), file.join("below"), "/proc/selfsame-nowhere".into()];
    for path in in_the_way {
        let path = path.display().to_string();
        let refused = serve_on(folder.path(), &["--store", &format!("file:{path}")]);
        let said = format!("cannot use the folder {path};");
        assert_says(&refused, &[&said, "choose a folder", "os error"]);
    }
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let folder = folder();
    let foreign = folder.path().join("records-00000001.log");
    std::fs::write(&foreign, "my poems, which nobody shall lose").expect("written");
    let store = format!("file:{}", folder.path().display());
    let refused = serve_on(folder.path(), &["--store", &store]);
    assert_says(&refused, &["is not a store of selfsame"]);
    let poems = std::fs::read_to_string(foreign).expect("still there");
    assert_eq!(poems, "my poems, which nobody shall lose");
}

#[test]
fn a_port_in_use_is_named_with_the_flag_that_chooses_another() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("bound").to_string();
    for flag in ["--listen", "--admin"] {
        let refused = serve_on(folder.path(), &["--store", "memory:", flag, &taken]);
        assert_says(&refused, &[&format!("cannot listen on {taken}"), flag]);
    }
}

#[test]
fn every_mistake_of_a_file_is_reported_at_once_with_its_line() {
    let folder = folder();
    let text = "listen = \"here\"\n\
        upstream = \"ftp://a\"\n\
        bogus = 1\n\
        [store]\n\
        url = \"file:./data\"\n\
        [idempotency]\n\
        lease = 30\n\
        retension = \"1h\"\n\
        [[route]]\n\
        key = \"maybe\"\n";
    std::fs::write(folder.path().join("wrong.toml"), text).expect("written");
    let refused = serve(folder.path(), &["--config", "wrong.toml"]);
    assert_says(
        &refused,
        &[
            "wrong.toml:1:10: listen",
            "wrong.toml:2:12: upstream",
            "wrong.toml:3:1: unknown name \"bogus\"",
            "wrong.toml:7:9: idempotency.lease",
            "wrong.toml:8:1: unknown name \"retension\"; did you mean \"retention\"?",
            "wrong.toml:9:1: route.match: is missing",
            "wrong.toml:10:7: route.key",
            "7 mistakes",
        ],
    );
    assert!(!folder.path().join("data").exists(), "nothing was started");
}

#[test]
fn a_file_that_is_not_there_and_an_upstream_that_is_not_named_are_mistakes() {
    let folder = folder();
    let refused = serve(folder.path(), &["--config", "nowhere.toml"]);
    assert_says(&refused, &["nowhere.toml: cannot be read", "1 mistake"]);
    let refused = serve(folder.path(), &[]);
    assert_says(&refused, &["--upstream: is missing", "1 mistake"]);
}

#[test]
fn an_admin_listener_that_others_can_reach_needs_a_token_file() {
    let folder = folder();
    let refused = serve_on(folder.path(), &["--store", "memory:", "--admin", "0.0.0.0:0"]);
    assert_says(&refused, &["can be reached from other machines", "token_file"]);
}

#[test]
fn what_the_command_line_does_not_know_ends_with_2() {
    for args in [&["serve", "--bogus"][..], &["serv"], &["keys", "free"]] {
        let mut command = binary();
        command.args(args);
        let ended = run_to_end(command);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("Usage:"), "{ended:?}");
    }
}

#[test]
fn no_password_of_an_address_is_shown() {
    let url = "postgres://me:hunter2@db.internal/keys";
    let help = |args: &[&str]| {
        let mut command = binary();
        command.args(args);
        for name in ["STORE", "STORE_DIRECT", "STORE_CACHE", "UPSTREAM", "ADMIN_URL"] {
            command.env(format!("SELFSAME_{name}"), url);
        }
        run_to_end(command)
    };
    for command in ["serve", "keys", "store", "config", "contract", "demo"] {
        let shown = help(&[command, "--help"]);
        assert!(shown.code == Some(0) && !shown.stdout.contains("hunter2"), "{shown:?}");
    }
    for args in [["keys", "show"], ["keys", "--help"], ["store", "--help"]] {
        let shown = help(&args);
        assert!(!format!("{shown:?}").contains("hunter2"), "{shown:?}");
    }
    let folder = folder();
    for store in [
        "host=db user=me password=hunter2",
        "file://me:hunter2@db",
        "password=hunter2:x",
        "mysql://me:hunter2@db",
        "redis://me:hunter2@:x",
    ] {
        let refused = serve_on(folder.path(), &["--store", store]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(!format!("{refused:?}").contains("hunter2"), "{refused:?}");
    }
}
