//! The audit table: a role that may only insert adds to it, and nothing twice.

use selfsame::stores::AuditEntry;
use selfsame_core::{AttemptId, RecordId, TenantTag, Timestamp};

use crate::support::PostgresBench;

fn entry(event: &'static str) -> AuditEntry {
    AuditEntry {
        entry: AttemptId::random(),
        at: Timestamp::from_millis(1_767_225_600_123),
        event,
        record: RecordId::from_bytes([7; RecordId::LEN]),
        tenant: Some(TenantTag::from_bytes([9; TenantTag::LEN])),
        route: Some("/a\0b".into()),
        key: None,
        attempt: Some(1),
        fence: None,
        status: Some(201),
        by: Some("alice".into()),
        reason: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_added_once_each() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let entries = [entry("claimed"), entry("completed")];
    for _ in 0..2 {
        store.append_audit(&entries).await.expect("the store works");
    }
    let sql = format!(
        "select string_agg(event || ' ' || to_char(at at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS.MS') \
         || ' ' || route, ', ' order by event) from {}.audit",
        bench.schema
    );
    let told: String = bench.owner().await.query_one(&sql, &[]).await.expect("readable").get(0);
    let one = "2026-01-01 00:00:00.123 /a\u{fffd}b";
    assert_eq!(told, format!("claimed {one}, completed {one}"));
}
