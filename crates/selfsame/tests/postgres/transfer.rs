//! Records and their phases as they are, from one schema into another.

use selfsame::stores::{Imported, JournalRow, Transfer};
use selfsame_core::conformance::samples::{answer, ask, checkpoint};
use selfsame_core::{Claimed, Facts, Release, Store};

use crate::support::PostgresBench;

#[tokio::test(flavor = "multi_thread")]
async fn records_and_phases_are_read_back_as_they_were() {
    let (here, there) = (PostgresBench::new(), PostgresBench::new());
    let (here, there) = (here.store().await, there.store().await);
    let mut ids = Vec::new();
    for key in ["completed", "saved", "failed", "held"] {
        let Claimed::Run(grant) = here.claim(&ask(key)).await.expect("it works") else {
            panic!("{key} is new")
        };
        let lease = grant.lease;
        ids.push(lease.id);
        let _fenced = match key {
            "completed" => here.complete(&lease, &answer("done")).await.map(drop),
            "saved" => here.checkpoint(&lease, &checkpoint("paid")).await.map(drop),
            "failed" => here.release(&lease, Release::Retry).await.map(drop),
            _ => here.release(&lease, Release::Hold).await.map(drop),
        };
    }
    ids.sort_unstable();
    assert_eq!(here.ids().await.expect("it works"), ids);
    here.set_fact("secret", b"ours").await.expect("it works");
    assert!(here.facts().await.expect("it works").contains(&("secret".into(), b"ours".to_vec())));

    for id in &ids {
        let record = here.get(id).await.expect("it works").expect("there");
        let phase = JournalRow {
            id: *id,
            birth: record.birth.as_bytes().to_vec(),
            ordinal: 1,
            name: "paid".into(),
            body: b"\0frame".to_vec(),
        };
        for expected in [Imported::Done, Imported::Known] {
            assert_eq!(there.import(&record).await.expect("it works"), expected);
            there.import_phase(&phase).await.expect("it works");
        }
        assert_eq!(there.get(id).await.expect("it works"), Some(record.clone()));
        assert_eq!(there.phases(&record).await.expect("it works"), [phase]);
    }
}
