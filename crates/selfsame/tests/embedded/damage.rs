//! Damage is noticed, and shuts no more than the record it is in.

use super::*;

async fn assert_shut(store: &EmbeddedStore, damaged: &Ask) {
    let is_damaged = |error: Option<StoreError>| error.is_some_and(|error| error.is_damaged());
    let lease = Lease {
        id: damaged.id,
        fence: selfsame_core::Fence::FIRST,
        attempt_id: damaged.attempt_id,
        length: LEASE,
    };
    for _ in 0..2 {
        assert!(is_damaged(store.claim(&retry(damaged)).await.err()));
        assert!(is_damaged(store.get(&damaged.id).await.err()));
        assert!(is_damaged(store.renew(&lease).await.err()));
        sweep_all(store).await;
    }
}

#[tokio::test]
async fn whichever_bit_is_flipped_no_key_runs_again() {
    let folder = folder();
    let store = open(&folder);
    let mut asks = Vec::new();
    for key in ["first", "second", "third"] {
        let ask = ask(key);
        let lease = run(&store, &ask).await;
        assert_eq!(store.checkpoint(&lease, &checkpoint("paid")).await.ok(), Some(Fenced::Applied));
        let recorded = store.complete(&lease, &answer("done")).await;
        assert!(matches!(recorded, Ok(Recorded::Until(_))));
        asks.push(ask);
    }
    drop(store);
    for has_index in [true, false] {
        let copy = copy_of(&folder);
        let (refused, shut) = flip_bits(&copy, &asks, has_index).await;
        // With an index little of the log is read at a start. Without one the heads of frames are
        // needed, which are a small part of a log. Checkpoints that were replaced are not needed.
        assert!(has_index || refused > 100, "{refused} refused");
        assert!(shut > 100, "{shut} shut");
    }
}

/// Opens the store with one bit of the log flipped, and then another. How often it is refused, and how
/// often a key is.
async fn flip_bits(folder: &TempDir, asks: &[Ask], has_index: bool) -> (usize, usize) {
    let log = only_segment(folder);
    let sound = fs::read(&log).expect("the log is there");
    let (mut refused, mut shut) = (0, 0);
    for at in (0..written(&sound)).step_by(3) {
        let folder = copy_of(folder);
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(only_segment(&folder), flipped).expect("the log can be written");
        if !has_index {
            remove_index(&folder);
        }
        let store = match EmbeddedStore::open(folder.path(), EmbeddedOptions::default()) {
            Ok(store) => store,
            Err(OpenError::Damaged { .. } | OpenError::Foreign { .. }) => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let mut here = 0;
        for ask in asks {
            match store.claim(&retry(ask)).await {
                Ok(Claimed::Replay(replay)) => assert_eq!(replay.answer, answer("done")),
                Err(error) if error.is_damaged() => here += 1,
                other => panic!("byte {at}: {other:?}"),
            }
        }
        assert!(here < 2, "byte {at} shut {here} keys");
        shut += here;
    }
    (refused, shut)
}

#[tokio::test]
async fn a_flipped_bit_in_an_answer_is_noticed_at_once_and_after_a_restart() {
    let folder = folder();
    let store = open(&folder);
    let unharmed = complete(&store, "unharmed").await;
    let body = b"a body to be found";
    let damaged = complete_with(&store, "damaged", body).await;
    let log = only_segment(&folder);
    let mut bytes = fs::read(&log).expect("the log is there");
    let at = position(&bytes, body);
    bytes[at] ^= 1;
    fs::write(&log, &bytes).expect("the log can be written");
    assert_shut(&store, &damaged).await;
    drop(store);

    let store = open(&folder);
    assert_shut(&store, &damaged).await;
    assert!(is_replayed(&store, &unharmed).await);
    let found = store.find(&Find::IdPrefix(String::new()), 100).await;
    assert_eq!(found.expect("bad records do not stop the search").len(), 1);
    complete(&store, "new").await;
}

#[tokio::test]
async fn a_damaged_record_stays_one_when_its_segment_goes() {
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let options = || EmbeddedOptions::default().clock(clock.clone());
    let store = reopen(&folder, options());
    let damaged = complete_with(&store, "damaged", b"a body to be found").await;
    drop(store);
    let log = only_segment(&folder);
    let mut bytes = fs::read(&log).expect("the log is there");
    let at = position(&bytes, b"a body to be found");
    bytes[at] ^= 1;
    fs::write(&log, &bytes).expect("the log can be written");
    // So that it is noticed at the start.
    remove_index(&folder);

    let store = reopen(&folder, options());
    for round in 0..12 {
        complete_with(&store, &format!("other-{round}"), &[7; 2 * 1024 * 1024]).await;
    }
    clock.pass(RETENTION + MARGIN);
    sweep_all(&store).await;
    expiry::eventually("the file is gone", || !log.exists()).await;
    assert_shut(&store, &damaged).await;
    drop(store);
    assert_shut(&reopen(&folder, options()), &damaged).await;
}

#[tokio::test]
async fn damage_in_an_expired_record_costs_nothing() {
    let folder = folder();
    let clock = Arc::new(SettableClock::new());
    let options = || EmbeddedOptions::default().clock(clock.clone());
    let store = reopen(&folder, options());
    let damaged = complete_with(&store, "damaged", b"a body to be found").await;
    let log = only_segment(&folder);
    let mut bytes = fs::read(&log).expect("the log is there");
    let at = position(&bytes, b"a body to be found");
    bytes[at] ^= 1;
    fs::write(&log, &bytes).expect("the log can be written");
    clock.pass(RETENTION + MARGIN);
    sweep_all(&store).await;
    run(&store, &retry(&damaged)).await;
}

#[tokio::test]
async fn a_lost_frame_is_a_store_that_does_not_open() {
    let folder = folder();
    let store = open(&folder);
    for key in ["first", "second"] {
        complete(&store, key).await;
    }
    drop(store);
    let log = only_segment(&folder);
    let mut bytes = fs::read(&log).expect("the log is there");
    bytes[28..96].fill(0);
    fs::write(&log, &bytes).expect("the log can be written");
    remove_index(&folder);
    let text = super::refused(folder.path()).to_string();
    for part in ["is damaged", "at byte 28", "selfsame store repair"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn only_the_damaged_record_that_is_named_is_forgotten() {
    let folder = folder();
    let store = open(&folder);
    let mut damaged = Vec::new();
    for number in 0..8 {
        let body = format!("a body to be found {number}");
        damaged.push(complete_with(&store, &format!("key-{number}"), body.as_bytes()).await);
    }
    let log = only_segment(&folder);
    let mut bytes = fs::read(&log).expect("the log is there");
    for number in 0..8 {
        let at = position(&bytes, format!("a body to be found {number}").as_bytes());
        bytes[at] ^= 1;
    }
    fs::write(&log, &bytes).expect("the log can be written");
    damaged.sort_by_key(|ask| ask.id);
    // One in the middle: those before and behind it must stay.
    let forgotten = damaged.remove(4);
    let prefix = &forgotten.id.to_string()[..12];
    assert_eq!(store.forget_damaged(prefix).await.ok(), Some(1));
    assert_eq!(store.forget_damaged(prefix).await.ok(), Some(0));
    for ask in &damaged {
        assert_shut(&store, ask).await;
    }
    run(&store, &retry(&forgotten)).await;
}
