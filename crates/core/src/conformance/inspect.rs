//! What people see.

use std::collections::BTreeSet;

use super::Trial;
use super::samples::{LEASE, MARGIN, answer, ask, ask_of, retry};
use crate::Fenced::Applied;
use crate::{
    Ask, Count, Filter, Find, Record, RecordId, Recover, Release, StateName, Tenant, Whose,
};

/// A key is looked up without knowing whose it is.
pub async fn a_key_is_found_for_each_of_its_tenants(trial: Trial) {
    let tenants = ["acme", "globex"].map(|name| Tenant::named("header:x-tenant", name));
    let asks = tenants.map(|tenant| ask_of(&tenant, "order-1"));
    for ask in &asks {
        trial.run(ask).await;
    }
    trial.run(&ask("order-10")).await;
    trial.run(&ask("Order-1")).await;
    let found = trial.find(&Find::Key("order-1".into()), 10).await;
    assert_eq!(ids(&found), asks.iter().map(|ask| ask.id).collect());
    for record in found {
        assert_eq!(record, trial.record(&record.id).await);
    }
}

/// Text that means something to a database means nothing here.
pub async fn a_key_is_found_only_by_its_very_text(trial: Trial) {
    let odd = ask("100%_'\";*?[a]");
    trial.run(&odd).await;
    trial.run(&ask("1000_x")).await;
    let find = |text: &str| Find::Key(text.to_owned());
    assert_eq!(ids(&trial.find(&find("100%_'\";*?[a]"), 10).await), BTreeSet::from([odd.id]));
    for pattern in ["%", "*", "100%", "", "' OR 1=1 --"] {
        assert_eq!(trial.find(&find(pattern), 10).await, [], "{pattern}");
    }
}

/// Logs show the first characters of an id, and that is enough.
pub async fn a_record_is_found_by_the_beginning_of_its_id(trial: Trial) {
    let (wanted, other) = (ask("wanted"), ask("other"));
    trial.run(&wanted).await;
    trial.run(&other).await;
    let whole = wanted.id.to_string();
    for prefix in [&whole[..12], &whole[..13], &whole[..]] {
        let found = trial.find(&Find::IdPrefix(prefix.to_owned()), 10).await;
        assert_eq!(ids(&found), BTreeSet::from([wanted.id]), "{prefix}");
    }
    let all = trial.find(&Find::IdPrefix(String::new()), 10).await;
    assert_eq!(ids(&all), BTreeSet::from([wanted.id, other.id]));
    for nothing in ["%", "xyz", &format!("{whole}0")] {
        assert_eq!(trial.find(&Find::IdPrefix(nothing.to_owned()), 10).await, [], "{nothing}");
    }
}

/// All that waits for a person is found, also before a retry or a sweep saw that it died.
pub async fn whatever_waits_for_a_person_is_found(trial: Trial) {
    let dead = Ask { recover: Recover::Hold, ..ask("dead") };
    trial.run(&dead).await;
    trial.run(&ask("resumable")).await;
    trial.pass(LEASE + MARGIN).await;
    let held = trial.run(&ask("held")).await.lease;
    assert_eq!(trial.release(&held, Release::Hold).await, Applied);
    trial.run(&Ask { recover: Recover::Hold, ..ask("live") }).await;
    let found = trial.find(&Find::Held, 10).await;
    assert_eq!(ids(&found), BTreeSet::from([dead.id, held.id]));
}

/// No page shows more than it can.
pub async fn finding_is_bounded(trial: Trial) {
    for at in 0..6 {
        let lease = trial.run(&ask(&format!("k-{at}"))).await.lease;
        assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
    }
    for find in [Find::Held, Find::IdPrefix(String::new())] {
        assert_eq!(trial.find(&find, 4).await.len(), 4, "{find:?}");
        assert_eq!(trial.find(&find, 10).await.len(), 6, "{find:?}");
    }
}

/// All that a tenant has is gone through in bites, and nothing of another's.
pub async fn a_tenant_s_records_are_found_in_order(trial: Trial) {
    let tenants = [Tenant::named("header:x-tenant", "acme"), Tenant::credential("c", b"secret")];
    for (tenant, name) in tenants.iter().zip([Some("acme"), None]) {
        let asks: Vec<_> = (0..5).map(|at| ask_of(tenant, &format!("k-{at}"))).collect();
        for ask in &asks {
            let lease = trial.run(ask).await.lease;
            assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
        }
        let tag = Whose::Tag(asks[0].label.tenant);
        for whose in [Some(tag), name.map(|name| Whose::Name(name.to_owned()))].iter().flatten() {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let find = Find::tenant(whose.clone(), after);
                let bite = trial.find(&find, 2).await;
                assert!(bite.len() <= 2);
                let Some(last) = bite.last() else { break };
                after = Some(last.id);
                found.extend(bite.iter().map(|record| record.id));
            }
            assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
            assert_eq!(BTreeSet::from_iter(found), asks.iter().map(|ask| ask.id).collect());
        }
    }
    let nobody = Find::tenant(Whose::Name("globex".into()), None);
    assert_eq!(trial.find(&nobody, 10).await, []);
}

/// A filter lets through what all of its conditions fit, page by page.
pub async fn records_are_found_by_state_route_and_time(trial: Trial) {
    let early = trial.run(&ask("early")).await.lease;
    assert_eq!(trial.complete(&early, &answer("done")).await, Applied);
    trial.pass(LEASE).await;
    let since = trial.now().await;
    trial.pass(MARGIN).await;
    let dead = trial.run(&Ask { recover: Recover::Hold, ..ask("dead") }).await.lease;
    trial.pass(LEASE + MARGIN).await;
    let failed = trial.run(&ask("failed")).await.lease;
    assert_eq!(trial.release(&failed, Release::Retry).await, Applied);
    let mut elsewhere = ask("elsewhere");
    elsewhere.label.route = "/elsewhere".into();
    let elsewhere = trial.run(&elsewhere).await.lease;

    let by_state = |state| Filter { state: Some(state), ..Filter::default() };
    let late = Filter { since: Some(since), ..Filter::default() };
    let there = Filter { route: Some("/elsewhere".into()), ..Filter::default() };
    let expected = [
        (Filter::default(), vec![early.id, dead.id, failed.id, elsewhere.id]),
        (by_state(StateName::Completed), vec![early.id]),
        (by_state(StateName::Held), vec![dead.id]),
        (by_state(StateName::Failed), vec![failed.id]),
        (by_state(StateName::Claimed), vec![elsewhere.id]),
        (by_state(StateName::Tombstone), vec![]),
        (late.clone(), vec![dead.id, failed.id, elsewhere.id]),
        (there.clone(), vec![elsewhere.id]),
        (Filter { state: Some(StateName::Held), ..there }, vec![]),
    ];
    for (filter, ids) in expected {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = trial.find(&Find::Matching { filter: filter.clone(), after }, 2).await;
            assert!(page.len() <= 2);
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            found.extend(page.iter().map(|record| record.id));
        }
        assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
        assert_eq!(BTreeSet::from_iter(found), BTreeSet::from_iter(ids), "{filter:?}");
    }
}

/// How many there are of each.
pub async fn records_are_counted_by_state(trial: Trial) {
    assert_eq!(trial.count().await, Count::default());
    for at in 0..10 {
        let lease = trial.run(&ask(&format!("k-{at}"))).await.lease;
        let ended = match at {
            0 => continue,
            1..3 => trial.complete(&lease, &answer("done")).await,
            3..6 => trial.release(&lease, Release::Retry).await,
            _ => trial.release(&lease, Release::Hold).await,
        };
        assert_eq!(ended, Applied);
    }
    let expected = Count { claimed: 1, completed: 2, failed: 3, held: 4, tombstone: 0 };
    assert_eq!(trial.count().await, expected);
}

/// The clock that decides is the one that is shown.
pub async fn the_clock_that_decides_is_shown(trial: Trial) {
    let before = trial.now().await;
    trial.pass(LEASE * 2).await;
    let after = trial.now().await;
    assert!(after >= before + LEASE * 2);
    let first = ask("k");
    trial.run(&first).await;
    assert!(trial.record(&first.id).await.created_at >= after);
}

/// Looking changes nothing.
pub async fn looking_changes_nothing(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    trial.run(&first).await;
    trial.pass(LEASE + MARGIN).await;
    let before = trial.record(&first.id).await;
    trial.find(&Find::Held, 10).await;
    trial.count().await;
    assert_eq!(trial.record(&first.id).await, before);
    let newly = crate::Claimed::Held { newly: true };
    assert_eq!(trial.claim(&retry(&first)).await, newly);
}

fn ids(records: &[Record]) -> BTreeSet<RecordId> {
    records.iter().map(|record| record.id).collect()
}
