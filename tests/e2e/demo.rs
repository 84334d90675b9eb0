//! The demo plays to its end, fails if Selfsame does, and is fit to be piped.

use crate::harness::{binary, run_to_end};

#[test]
fn the_demo_plays_by_itself_and_every_key_is_charged_once() {
    let mut command = binary();
    command.args(["demo", "--play", "--fast"]);
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let last = ended.stdout.lines().last();
    assert_eq!(last, Some("with Selfsame: every key was charged once"), "{ended:?}");
    assert!(ended.stdout.contains("the customer paid twice"), "what happens without it is shown");
    assert!(!ended.stdout.contains('\u{1b}'), "no colours in a pipe");
    assert_eq!(ended.stderr, "", "nothing went wrong on the way");
}
