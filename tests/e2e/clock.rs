//! Rows 35 and 57: the wall clock is wrong, or is set, and no young key expires.

use crate::harness::{Gateway, Ledger, Machine, Request, Setup, eventually, run_to_end};

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json(r#"{"amount":10}"#)
}

fn start(machine: &Machine, setup: Setup) -> Gateway {
    let config = setup.write_config();
    setup.start_as(machine.serve(&config))
}

#[test]
fn a_clock_that_is_set_right_after_the_start_makes_no_young_key_new() {
    let (mut machine, ledger) = (Machine::new(), Ledger::start());
    machine.set_clock(-25);
    let gateway = start(&machine, Gateway::in_front_of(&ledger));
    let first = charge(&gateway, "young").send();
    assert_eq!(first.status, 201);

    machine.set_clock(0);
    let mut number = 0;
    eventually("the step is noticed", || {
        number += 1;
        assert_eq!(charge(&gateway, &format!("later-{number}")).send().status, 201);
        gateway.log().contains("the wall clock was set").then_some(())
    });
    charge(&gateway, "young").send().replays(&first);
    let setup = gateway.kill();

    machine.boot();
    let gateway = start(&machine, setup);
    charge(&gateway, "young").send().replays(&first);
    assert_eq!(ledger.effects("young"), 1);
    gateway.expect_log("the store's time is not the wall clock's");
    let setup = gateway.kill();

    // In another store it would be 25 hours older at once.
    let copy = format!("file:{}", setup.data().with_extension("copy").display());
    let mut copying = machine.run();
    copying.args(["store", "copy", &format!("file:{}", setup.data().display()), &copy]);
    let copied = run_to_end(copying);
    assert_ne!(copied.code, Some(0));
    assert!(copied.stderr.contains("keys would expire early there"), "{}", copied.stderr);

    // A person says that the clock is right: the key is 25 hours old then.
    let store = format!("file:{}", setup.data().display());
    let adopt = |yes: &[&str]| {
        let mut command = machine.run();
        command.args(["store", "adopt-clock", "--store", &store]).args(yes);
        run_to_end(command)
    };
    let asked = adopt(&[]);
    assert!(asked.stderr.contains("The wall clock is 1day"), "{}", asked.stderr);
    assert_ne!(asked.code, Some(0));
    let adopted = adopt(&["--yes"]);
    assert_eq!(adopted.code, Some(0), "{}", adopted.stderr);
    let gateway = start(&machine, setup);
    let again = charge(&gateway, "young").send();
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, None));
}

#[test]
fn a_start_long_after_the_last_write_is_warned_about() {
    let (mut machine, ledger) = (Machine::new(), Ledger::start());
    let gateway = start(&machine, Gateway::in_front_of(&ledger));
    assert_eq!(charge(&gateway, "order-1").send().status, 201);
    let setup = gateway.kill();
    machine.boot();
    machine.set_clock(30);
    let gateway = start(&machine, setup);
    gateway.expect_log("the machine was booted since the store was last written");
}

#[test]
fn a_start_long_after_the_last_write_is_refused_where_that_is_configured() {
    let (mut machine, ledger) = (Machine::new(), Ledger::start());
    let setup = Gateway::in_front_of(&ledger).store_with("max_clock_gap = \"24h\"\n");
    let gateway = start(&machine, setup);
    assert_eq!(charge(&gateway, "order-1").send().status, 201);
    let (_, setup) = gateway.terminate();
    machine.boot();
    machine.set_clock(30);
    let config = setup.write_config();
    let refused = run_to_end(machine.serve(&config));
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("selfsame store adopt-clock"), "{}", refused.stderr);

    let store = format!("file:{}", setup.data().display());
    let run = |args: &[&str]| {
        let mut command = machine.run();
        command.arg("store").args(args).args(["--store", &store]);
        run_to_end(command)
    };
    // Who looks does not make it count.
    assert_eq!(run(&["info"]).code, Some(0));
    assert_ne!(run_to_end(machine.serve(&config)).code, Some(0));
    let adopted = run(&["adopt-clock", "--yes"]);
    assert_eq!(adopted.code, Some(0), "{}", adopted.stderr);
    let gateway = start(&machine, setup);
    assert_eq!(charge(&gateway, "order-2").send().status, 201);
}
