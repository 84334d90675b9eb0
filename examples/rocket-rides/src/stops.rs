//! Points at which a test stops the service, to kill it there or to let it go on later.

use std::process::Command;
use std::sync::LazyLock;

/// The variable that names one of [`POINTS`].
pub const VARIABLE: &str = "ROCKET_RIDES_STOP_AT";

/// Before, inside and behind each part of a ride.
pub const POINTS: [&str; 8] = [
    "started",
    "ride_created: inside",
    "ride_created: committed",
    "charge_created: inside",
    "charge_created: charged",
    "charge_created: noted",
    "finished: inside",
    "finished: committed",
];

/// A signal is sent before it is felt: whoever waits for this does not come a step further.
const STOP: &str =
    r#"kill -STOP "$1"; while grep -qs '^State:.[^TZ]' "/proc/$1/status"; do :; done"#;

static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(VARIABLE).ok());

/// Stops the process here, if this is the point that was chosen, until it gets a SIGCONT.
pub fn at(point: &str) {
    if CHOSEN.as_deref() == Some(point) {
        println!("stopped at {point}");
        let id = std::process::id().to_string();
        let stop = Command::new("sh").args(["-c", STOP, "stop", &id]).status();
        assert!(stop.is_ok_and(|stop| stop.success()), "sh and grep are there");
    }
}
