//! Every name a configuration may hold, and what is said about any other.

/// The names that one table of the file may hold.
pub(super) struct Vocabulary {
    /// The table's name; empty for the top of the file.
    pub(super) table: &'static str,
    names: &'static [&'static [&'static str]],
}

pub(super) const TOP: Vocabulary = Vocabulary {
    table: "",
    names: &[
        &["listen", "upstream", "connect_timeout", "drain_timeout", "trusted_proxies"],
        &["shutdown_delay", "underscores_in_headers", "merge_slashes"],
        &["secret_file", "log_keys", "public_url", "contract_page", "status"],
        &["tls", "upstream_tls", "store", "admin", "checkpoints", "jwt", "idempotency", "route"],
        &["encryption", "audit", "limits", "forward_auth", "admin_tls"],
    ],
};

pub(super) const TLS: Vocabulary =
    Vocabulary { table: "tls", names: &[&["cert", "key", "client_ca", "client_auth"]] };

pub(super) const ADMIN_TLS: Vocabulary =
    Vocabulary { table: "admin_tls", names: &[&["cert", "key", "client_ca", "client_auth"]] };

pub(super) const UPSTREAM_TLS: Vocabulary =
    Vocabulary { table: "upstream_tls", names: &[&["ca", "cert", "key", "server_name"]] };

pub(super) const STORE: Vocabulary = Vocabulary {
    table: "store",
    names: &[
        &["url", "spool", "max_store_bytes", "near_cache", "direct_url", "auto_migrate"],
        &["accept_loss", "accept_unverified", "wait_replicas", "cache_url", "lock"],
        &["max_clock_gap", "verify_every"],
    ],
};

pub(super) const ADMIN: Vocabulary =
    Vocabulary { table: "admin", names: &[&["listen", "token_file"]] };

pub(super) const JWT: Vocabulary =
    Vocabulary { table: "jwt", names: &[&["key_file", "algorithms", "issuer", "audience"]] };

pub(super) const AUDIT: Vocabulary = Vocabulary { table: "audit", names: &[&["to"]] };

pub(super) const ENCRYPTION: Vocabulary =
    Vocabulary { table: "encryption", names: &[&["key_file"]] };

pub(super) const FORWARD_AUTH: Vocabulary = Vocabulary {
    table: "forward_auth",
    names: &[&["url", "timeout", "headers", "tenant_header", "cache"]],
};

pub(super) const LIMITS: Vocabulary = Vocabulary {
    table: "limits",
    names: &[
        &["max_connections", "max_requests", "max_streams", "max_headers", "max_header_bytes"],
        &["max_connections_per_address", "max_requests_per_address", "max_abandoned_requests"],
        &["max_new_keys_per_address", "max_upstream_connections", "min_body_rate"],
        &["max_buffered_bytes", "max_buffered_bytes_per_address"],
        &["head_timeout", "body_timeout", "answer_timeout", "write_timeout", "idle_timeout"],
        &["tunnel_idle_timeout"],
    ],
};

pub(super) const CHECKPOINTS: Vocabulary =
    Vocabulary { table: "checkpoints", names: &[&["listen", "url"]] };

pub(super) const IDEMPOTENCY: Vocabulary = Vocabulary { table: "idempotency", names: &[PER_ROUTE] };

pub(super) const ROUTE: Vocabulary =
    Vocabulary { table: "route", names: &[&["match", "host", "upstream"], PER_ROUTE] };

const PER_ROUTE: &[&str] = &[
    "mode",
    "profile",
    "key",
    "key_headers",
    "key_pointer",
    "strict",
    "format",
    "min_length",
    "reject_older_than",
    "methods",
    "tenant",
    "scope",
    "fingerprint",
    "ignore",
    "headers",
    "mismatch_hint",
    "recover",
    "probe",
    "upstream_idempotent",
    "complete_abandoned",
    "completer_after",
    "completer_attempts",
    "completer_headers",
    "server_errors",
    "final_statuses",
    "transient_statuses",
    "unknown_statuses",
    "on_conflict",
    "wait_max",
    "retention",
    "remember",
    "allow_short_retention",
    "lease",
    "response_timeout",
    "run_timeout",
    "max_request_body",
    "max_response_body",
    "max_live_keys",
    "max_claims",
    "max_held_keys",
    "stream",
    "replay_needs",
    "replay_status",
    "replay_set_cookie",
    "replay_also",
    "replay_never",
    "expires_header",
    "cors_origins",
    "on_store_error",
];

impl Vocabulary {
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static str> {
        self.names.iter().flat_map(|names| names.iter().copied())
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.iter().any(|known| known == name)
    }

    /// What to say about a name that is not among these.
    pub(super) fn complaint(&self, name: &str) -> String {
        // A setting below the wrong [table] is the commonest slip that TOML invites.
        let homes = [TOP, STORE, ADMIN, IDEMPOTENCY, JWT, TLS, UPSTREAM_TLS, LIMITS];
        let home = homes.into_iter().find(|other| other.contains(name));
        match (home, self.nearest(name)) {
            (Some(home), _) => format!("unknown name {name:?} here; it belongs {}", home.place()),
            (None, Some(near)) => format!("unknown name {name:?}; did you mean {near:?}?"),
            (None, None) => format!("unknown name {name:?}"),
        }
    }

    fn place(&self) -> String {
        match self.table {
            "" => "at the top, before any [table]".to_owned(),
            table => format!("below [{table}]"),
        }
    }

    /// The name that was probably meant: one slip in short names, up to three in long ones.
    fn nearest(&self, name: &str) -> Option<&'static str> {
        let slips_max = (name.chars().count() / 3).clamp(1, 3);
        let near = self.iter().map(|known| (slips(name, known), known)).min()?;
        (near.0 <= slips_max).then_some(near.1)
    }
}

/// How many letters must be added, dropped, changed or swapped with their neighbour.
fn slips(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut previous = None;
    for (row, letter) in left.chars().enumerate() {
        let mut next = vec![row + 1];
        for (column, &other) in right.iter().enumerate() {
            let changed = last[column] + usize::from(letter != other);
            let mut best = changed.min(last[column + 1] + 1).min(next[column] + 1);
            if column > 0 && previous == Some(other) && right[column - 1] == letter {
                best = best.min(before_last[column - 1] + 1);
            }
            next.push(best);
        }
        before_last = std::mem::replace(&mut last, next);
        previous = Some(letter);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted() {
        let table = [
            ("lease", "lease", 0),
            ("leese", "lease", 1),
            ("leas", "lease", 1),
            ("leasee", "lease", 1),
            ("laese", "lease", 1),
            ("", "lease", 5),
            ("retension", "retention", 1),
        ];
        for (left, right, count) in table {
            assert_eq!(slips(left, right), count, "{left} {right}");
            assert_eq!(slips(right, left), count, "{right} {left}");
        }
    }

    #[test]
    fn an_unknown_name_is_told_its_nearest_right_one() {
        let table = [
            ("retension", "unknown name \"retension\"; did you mean \"retention\"?"),
            ("Lease", "unknown name \"Lease\"; did you mean \"lease\"?"),
            ("run-timeout", "unknown name \"run-timeout\"; did you mean \"run_timeout\"?"),
            ("kye", "unknown name \"kye\"; did you mean \"key\"?"),
            ("colour", "unknown name \"colour\""),
        ];
        for (name, complaint) in table {
            assert_eq!(IDEMPOTENCY.complaint(name), complaint);
        }
    }

    #[test]
    fn a_name_below_the_wrong_table_is_told_where_it_belongs() {
        let table = [
            (&TOP, "retention", "below [idempotency]"),
            (&TOP, "url", "below [store]"),
            (&STORE, "token_file", "below [admin]"),
            (&ROUTE, "drain_timeout", "at the top, before any [table]"),
        ];
        for (vocabulary, name, place) in table {
            let expected = format!("unknown name {name:?} here; it belongs {place}");
            assert_eq!(vocabulary.complaint(name), expected);
        }
    }
}
