//! The scripts: each is one atomic step, makes no more than one write, and knows its own earlier run.

use std::sync::OnceLock;

use redis::{Cmd, Value, cmd};
use sha1_smol::Sha1;

/// Claims a key that is new, or reads what is known of it.
pub(super) static CLAIM: Script = Script::new(
    concat!(include_str!("head.lua"), include_str!("claim.lua")),
    |answer| matches!(answer, Value::Array(said) if said.len() == 1),
);
/// Records an answer.
pub(super) static COMPLETE: Script =
    Script::new(concat!(include_str!("head.lua"), include_str!("complete.lua")), |answer| {
        matches!(answer, Value::Int(_))
    });
/// Counts: a script, so that what replicas have not got does not count either.
pub(super) static COUNT: Script = Script::new(include_str!("count.lua"), |_| true);
/// Takes no new keys for a time.
pub(super) static CLOSE: Script =
    Script::new(concat!(include_str!("head.lua"), include_str!("close.lua")), |_| false);
/// Replaces or removes a record as it was seen.
pub(super) static REPLACE: Script = Script::new(
    concat!(include_str!("head.lua"), include_str!("replace.lua")),
    |answer| matches!(answer, Value::BulkString(said) if said == b"done"),
);

/// Puts an entry into a cache, unless what is there says more.
pub(super) static PUT: Script =
    Script::new(include_str!("put.lua"), |answer| matches!(answer, Value::Int(1)));

/// A script, and the name by which a server knows it that has run it before.
pub(super) struct Script {
    text: &'static str,
    name: OnceLock<String>,
    /// Whether it wrote something, by what it said.
    wrote: fn(&Value) -> bool,
}

impl Script {
    const fn new(text: &'static str, wrote: fn(&Value) -> bool) -> Self {
        Self { text, name: OnceLock::new(), wrote }
    }

    fn name(&self) -> &str {
        self.name.get_or_init(|| Sha1::from(self.text).digest().to_string())
    }
}

/// A call of a script.
pub(super) struct Call {
    script: &'static Script,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Call {
    pub(super) fn new(script: &'static Script, key: impl Into<String>) -> Self {
        Self { script, keys: vec![key.into()], args: Vec::new() }
    }

    /// With another key.
    pub(super) fn beside(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    pub(super) fn arg(mut self, arg: impl Into<Vec<u8>>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(super) fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }

    /// By its name, which a server knows that has run it before.
    pub(super) fn by_name(&self) -> Cmd {
        self.command("EVALSHA", self.script.name())
    }

    /// In full, from which a server learns its name.
    pub(super) fn in_full(&self) -> Cmd {
        self.command("EVAL", self.script.text)
    }

    pub(super) fn wrote(&self, answer: &Value) -> bool {
        (self.script.wrote)(answer)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        command
    }
}
