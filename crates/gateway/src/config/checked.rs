//! What is allowed: a file and flags become a [`Config`], or a list of all their mistakes.

use std::net::SocketAddr;
use std::time::Duration;

use super::file::{Flag, Section, Source};
use super::mistakes::Mistakes;
use super::names::{ADMIN, IDEMPOTENCY, ROUTE, STORE, TOP};
use super::network::{ADDRESS, NETWORK, STORE_URL, UPSTREAM, overlap};
use super::routes::{MATCH, Taken};
use super::settings::Draft;
use super::values::{DURATION, PATH, SWITCH};
use super::{Admin, Config, Overrides, Route, RouteSettings, StoreUrl, TenantSource, Upstream};

/// Reads `source` with `overrides` before it. What was found wrong earlier is handed in.
pub(super) fn check(
    source: &Source,
    overrides: &Overrides,
    mut mistakes: Mistakes,
) -> Result<Config, Mistakes> {
    let is_readable = mistakes.is_empty();
    let (table, syntax) = source.parse();
    let mut root = Section::new(source, &TOP, Some(table.get_ref()), 0);

    let mut listen = SocketAddr::from(([127, 0, 0, 1], 8080));
    root.set_flag("listen", &ADDRESS, flag("--listen", &overrides.listen), &mut listen);
    …
}
