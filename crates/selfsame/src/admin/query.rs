//! The query of a listing: which records, and which page of them.

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{Filter, RecordId, StateName, TenantTag, Timestamp, Whose};

/// Records on a page, unless the query says otherwise.
const LIMIT: usize = 100;
/// The most records that a query may have on a page.
const LIMIT_MAX: usize = 1000;

/// Which records a listing shows.
#[derive(Debug, Default)]
pub(super) struct Query {
    /// A key, or the beginning of a record's id.
    pub(super) find: Option<String>,
    pub(super) filter: Filter,
    pub(super) after: Option<RecordId>,
    pub(super) limit: usize,
    /// All but the place where the page begins, to build the next page's query from.
    rest: Vec<(String, String)>,
}

impl Query {
    /// Reads `find`, `state`, `tenant`, `tenant_name`, `route`, `since`, `after` and `limit`.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, String> {
        let mut parsed = Self { limit: LIMIT, ..Self::default() };
        let mut is_any_state = false;
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?.into_owned());
            match &*name {
                "find" => parsed.find = Some(value.clone()),
                "state" if value == "all" => is_any_state = true,
                "state" => parsed.filter.state = Some(state(&value)?),
                "tenant" => parsed.filter.tenant = Some(Whose::Tag(tag(&value)?)),
                "tenant_name" => parsed.filter.tenant = Some(Whose::Name(value.clone())),
                "route" => parsed.filter.route = Some(value.clone()),
                "since" => parsed.filter.since = Some(time(&value)?),
                "limit" => parsed.limit = limit(&value)?,
                "after" => {
                    let after = RecordId::parse(&value);
                    parsed.after = Some(after.ok_or("\"after\" is no record's id")?);
                    continue;
                }
                other => {
                    return Err(format!(
                        "{other:?} is no parameter; there are find, state, tenant, tenant_name, \
                         route, since, after and limit"
                    ));
                }
            }
            parsed.rest.push((name.into_owned(), value));
        }
        // Whoever asks for nothing wants to know what there is to do.
        if !is_any_state && parsed.find.is_none() && parsed.filter == Filter::default() {
            parsed.filter.state = Some(StateName::Held);
        }
        Ok(parsed)
    }

    /// The query of the page behind `last`.
    pub(super) fn behind(&self, last: &RecordId) -> String {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let pairs = self.rest.iter().map(|(name, value)| format!("{name}={}&", encode(value)));
        format!("?{}after={last}", pairs.collect::<String>())
    }
}

fn decoded(text: &str) -> Result<Cow<'_, str>, String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    let decoded = decoded.map_err(|_| format!("{text:?} is not UTF-8"))?;
    Ok(Cow::Owned(decoded.into_owned()))
}

fn state(name: &str) -> Result<StateName, String> {
    StateName::parse(name).ok_or_else(|| {
        let names = StateName::ALL.map(StateName::as_str).join(", ");
        format!("{name:?} is no state; there are {names} and all")
    })
}

fn tag(text: &str) -> Result<TenantTag, String> {
    TenantTag::parse(text).ok_or_else(|| {
        format!("{text:?} is no tenant's tag: that is 32 hex digits; a name goes into tenant_name")
    })
}

fn limit(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|limit| (1..=LIMIT_MAX).contains(limit))
        .ok_or_else(|| format!("\"limit\" is a number from 1 to {LIMIT_MAX}, not {text:?}"))
}

fn time(text: &str) -> Result<Timestamp, String> {
    let expected = || format!("\"since\" is a time such as 2026-01-31T12:00:00Z, not {text:?}");
    let time = humantime::parse_rfc3339_weak(text).map_err(|_| expected())?;
    let since: Duration = time.duration_since(UNIX_EPOCH).map_err(|_| expected())?;
    Ok(Timestamp::from_millis(u64::try_from(since.as_millis()).map_err(|_| expected())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_asked_for_means_what_is_held() {
        let filter = Query::parse(None).expect("valid").filter;
        assert_eq!(filter, Filter { state: Some(StateName::Held), ..Filter::default() });
        assert_eq!(Query::parse(Some("state=all")).expect("valid").filter, Filter::default());
        assert_eq!(Query::parse(Some("route=%2Fa")).expect("valid").filter.state, None);
    }

    #[test]
    fn the_next_page_asks_for_the_same_records_behind_the_last() {
        let last = RecordId::from_bytes([7; RecordId::LEN]);
        let old = RecordId::from_bytes([1; RecordId::LEN]);
        let query = format!("state=held&after={old}&route=POST+%2Fcharges%26x&limit=7");
        let next = Query::parse(Some(&query)).expect("valid").behind(&last);
        let next = Query::parse(next.strip_prefix('?')).expect("valid");
        assert_eq!(next.filter.route.as_deref(), Some("POST /charges&x"));
        assert_eq!((next.filter.state, next.limit), (Some(StateName::Held), 7));
        assert_eq!(next.after, Some(last));
    }

    #[test]
    fn what_is_not_understood_is_an_error_that_says_so() {
        for wrong in ["sate=held", "state=hold", "tenant=acme", "since=yesterday", "limit=0"] {
            let error = Query::parse(Some(wrong)).expect_err(wrong);
            assert!(
                error.contains(wrong.split('=').next_back().expect("a value"))
                    || error.contains("sate"),
                "{error}"
            );
        }
        for wrong in ["limit=1001", "after=ab", "find=%ff"] {
            assert!(Query::parse(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
