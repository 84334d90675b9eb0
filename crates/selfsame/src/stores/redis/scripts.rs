//! The scripts: each is one atomic step, makes no more than one write to a record, and knows its own earlier run.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{Arg, Cmd, Value, cmd};
use sha1_smol::Sha1;

use super::value::millis;

/// Claims a key that is new, or reads what is known of it.
pub(super) static CLAIM: Script = Script::new(
    include_str!("claim.lua"),
    |answer| matches!(answer, Value::Array(said) if said.len() == 2),
);
/// Counts: a script, so that what replicas have not got does not count either.
pub(super) static COUNT: Script = Script::new(
    concat!(include_str!("time.lua"), include_str!("counts.lua"), include_str!("count.lua")),
    |_| true,
);
/// Reads a guard, or makes it.
pub(super) static MEET: Script = Script::new(include_str!("meet.lua"), |_| false);
/// Says that nothing is missed, or calls on others to say so.
pub(super) static CONFIRM: Script = Script::new(
    concat!(include_str!("time.lua"), include_str!("counts.lua"), include_str!("confirm.lua")),
    |_| false,
);
/// Keeps the list of nodes.
pub(super) static MEMBERS: Script = Script::new(include_str!("members.lua"), |_| false);
/// Takes new keys again.
pub(super) static REOPEN: Script =
    Script::new(concat!(include_str!("time.lua"), include_str!("reopen.lua")), |_| false);
/// Takes no new keys for a time.
pub(super) static CLOSE: Script = Script::new(
    concat!(include_str!("time.lua"), include_str!("counts.lua"), include_str!("close.lua")),
    |_| false,
);
/// Replaces or removes a record as it was seen, or several.
pub(super) static REPLACE: Script = Script::of_many(
    include_str!("replace.lua"),
    |answer| matches!(answer, Value::BulkString(said) if said == b"done"),
);

/// Puts an entry into a cache, unless what is there says more.
pub(super) static PUT: Script =
    Script::new(include_str!("put.lua"), |answer| matches!(answer, Value::Int(1)));

/// How many words a call has, at most, and how many bytes beside values.
const ARGS: usize = 12;
const ROOM: usize = 512;

/// Where a call has its first key: before it there are the command, the script's name, and how many there are.
const KEY_AT: usize = 3;

/// A script, and the name by which a server knows it that has run it before.
pub(super) struct Script {
    text: &'static str,
    name: OnceLock<String>,
    /// Whether it wrote something, by what it said.
    wrote: fn(&Value) -> bool,
    /// Whether it takes several keys, with so many words for each as for one, and lists what it has to say of each.
    is_of_many: bool,
}

impl Script {
    const fn new(text: &'static str, wrote: fn(&Value) -> bool) -> Self {
        Self { text, name: OnceLock::new(), wrote, is_of_many: false }
    }

    const fn of_many(text: &'static str, wrote: fn(&Value) -> bool) -> Self {
        Self { text, name: OnceLock::new(), wrote, is_of_many: true }
    }

    fn name(&self) -> &str {
        self.name.get_or_init(|| Sha1::from(self.text).digest().to_string())
    }
}

/// A call of a script.
pub(super) struct Call {
    script: &'static Script,
    /// By its name, which a server knows that has run it before.
    command: Cmd,
    is_shared: bool,
}

impl Call {
    pub(super) fn new(script: &'static Script, key: &str) -> Self {
        Self::with(script, &[key])
    }

    /// About a key and another one beside it.
    pub(super) fn with(script: &'static Script, keys: &[&str]) -> Self {
        let mut command = Cmd::with_capacity(ARGS, ROOM);
        command.arg("EVALSHA").arg(script.name()).arg(keys.len()).arg(keys);
        Self { script, command, is_shared: false }
    }

    pub(super) fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.command.arg(arg.as_ref());
        self
    }

    pub(super) fn number(mut self, number: u64) -> Self {
        self.command.arg(number);
        self
    }

    /// A time in milliseconds, or none.
    pub(super) fn millis(self, duration: Option<Duration>) -> Self {
        match duration {
            Some(duration) => self.number(millis(duration)),
            None => self.arg(""),
        }
    }

    /// It may go with others of its kind, of whatever slot.
    pub(super) fn shared(self) -> Self {
        Self { is_shared: self.script.is_of_many, ..self }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub(super) fn goes_with(&self, other: &Self) -> bool {
        std::ptr::eq(self.script, other.script)
    }

    pub(super) fn by_name(&self) -> &Cmd {
        &self.command
    }

    /// Calls that go together as one, by the name of their script.
    pub(super) fn together(calls: &[Arc<Self>]) -> Cmd {
        let bytes = calls.iter().flat_map(|call| call.words()).map(<[u8]>::len).sum();
        let mut command = Cmd::with_capacity(calls.len() * ARGS, bytes);
        let script = calls[0].script;
        command.arg("EVALSHA").arg(script.name()).arg(calls.len());
        for call in calls {
            command.arg(call.words().nth(KEY_AT).expect("it is about a key"));
        }
        for word in calls.iter().flat_map(|call| call.words().skip(KEY_AT + 1)) {
            command.arg(word);
        }
        command
    }

    /// In full, from which a server learns its name.
    pub(super) fn in_full(&self) -> Cmd {
        let mut command = cmd("EVAL");
        command.arg(self.script.text);
        for word in self.words().skip(2) {
            command.arg(word);
        }
        command
    }

    fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.command.args_iter().map(|arg| match arg {
            Arg::Simple(word) => word,
            _ => unreachable!("no script is a scan"),
        })
    }

    /// What is said of its key, where it is the only one.
    pub(super) fn own(&self, answer: Value) -> Value {
        match answer {
            Value::Array(mut each) if self.script.is_of_many => each.pop().unwrap_or(Value::Nil),
            answer => answer,
        }
    }

    pub(super) fn wrote(&self, answer: &Value) -> bool {
        (self.script.wrote)(answer)
    }
}
