//! How the demo looks: colours and pauses where a person watches, plain lines elsewhere.

use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

/// The pause before a scene, long enough to read the one before.
const PAUSE: Duration = Duration::from_millis(2500);
/// How wide the names of those who act are.
const NAME_WIDTH: usize = 8;

/// How fast the story is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// With pauses, if a person watches.
    ForPeople,
    /// As fast as it goes.
    Fast,
}

/// The colours there are, as terminals number them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ink {
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
    Cyan = 36,
}

/// Where the demo is shown.
#[derive(Debug)]
pub(super) struct Stage {
    coloured: bool,
    pause: Option<Duration>,
}

impl Stage {
    pub(super) fn on_stdout(pace: Pace) -> Self {
        let watched = stdout().is_terminal();
        // https://no-color.org: any value but an empty one means no.
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let pause = (watched && pace == Pace::ForPeople).then_some(PAUSE);
        Self { coloured: watched && !unwanted, pause }
    }

    pub(super) fn paint(&self, ink: Ink, text: &str) -> String {
        match self.coloured {
            true => format!("\x1b[{}m{text}\x1b[0m", ink as u8),
            false => text.to_owned(),
        }
    }

    pub(super) fn line(&self, text: &str) {
        // Whoever closed the other end of the pipe has seen enough.
        let _closed = writeln!(stdout(), "{text}");
    }

    pub(super) fn title(&self, text: &str) {
        self.line(&self.paint(Ink::Bold, text));
    }

    /// Begins a scene, once the one before could be read.
    pub(super) async fn scene(&self, title: &str) {
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
        }
        self.line("");
        self.title(title);
    }

    /// Somebody does or says something.
    pub(super) fn act(&self, who: &str, what: &str) {
        let who = self.paint(Ink::Cyan, &format!("{who:<NAME_WIDTH$}"));
        self.line(&format!("  {who}  {what}"));
    }

    /// What goes with the line before.
    pub(super) fn aside(&self, text: &str) {
        let text = self.paint(Ink::Dim, text);
        self.line(&format!("  {:NAME_WIDTH$}  {text}", ""));
    }

    /// How a scene ends: green where all is well, red where it is not.
    pub(super) fn result(&self, ink: Ink, text: &str) {
        let who = self.paint(ink, &format!("{:<NAME_WIDTH$}", "result"));
        self.line(&format!("  {who}  {}", self.paint(ink, text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_gets_plain_text_and_a_terminal_colour() {
        let pipe = Stage { coloured: false, pause: None };
        assert_eq!(pipe.paint(Ink::Green, "one charge"), "one charge");
        let terminal = Stage { coloured: true, pause: None };
        assert_eq!(terminal.paint(Ink::Green, "one charge"), "\x1b[32mone charge\x1b[0m");
    }
}
