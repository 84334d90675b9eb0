//! The person at the command line, whose decisions are kept with the record and in the audit log.

use std::os::unix::fs::MetadataExt;

/// Author and reason of a decision.
#[derive(Debug, clap::Args)]
pub(super) struct Operator {
    /// Your name, kept with the decision [default: the user who runs the command]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Your reason, kept with the decision
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Operator {
    /// The name and the reason, as the admin API takes them.
    pub(super) fn named(self) -> (Option<String>, Option<String>) {
        (Some(self.by.unwrap_or_else(user)), self.reason)
    }
}

/// The user who runs the command: by the process, because variables are easily wrong.
fn user() -> String {
    let Ok(process) = std::fs::metadata("/proc/self") else {
        let variable = |name| std::env::var(name).ok().filter(|name| !name.is_empty());
        return variable("USER").or(variable("LOGNAME")).unwrap_or_else(|| "unknown".to_owned());
    };
    let uid = process.uid();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(uid, &accounts).unwrap_or_else(|| format!("uid {uid}"))
}

fn name_of(uid: u32, accounts: &str) -> Option<String> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_user_is_known_by_its_account() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nalice:x:1001:1001::/home/alice:/bin/sh\n";
        assert_eq!(name_of(1001, accounts).as_deref(), Some("alice"));
        assert_eq!(name_of(7, accounts), None);
        assert_eq!(name_of(7, "broken\n::\n"), None);
    }
}
