//! What an installation agrees on.

use super::Trial;

/// The first value stays.
pub async fn a_fact_is_put_once(trial: Trial) {
    assert_eq!(trial.fact_or("secret", b"first\0\xff").await, b"first\0\xff");
    assert_eq!(trial.fact_or("secret", b"second").await, b"first\0\xff");
}

/// Nodes that start at the same time end up with the same secret.
pub async fn rivals_agree_on_a_fact(trial: Trial) {
    let rivals = (0..16).map(|at: u8| {
        let trial = trial.clone();
        async move { trial.fact_or("secret", &[at; 32]).await }
    });
    let values = trial.race(rivals).await;
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    assert_eq!(trial.fact_or("secret", b"late").await, values[0]);
}

/// An operator's word replaces what was agreed on.
pub async fn a_fact_can_be_replaced(trial: Trial) {
    trial.set_fact("identity", b"one").await;
    assert_eq!(trial.fact_or("identity", b"other").await, b"one");
    trial.set_fact("identity", b"").await;
    assert_eq!(trial.fact_or("identity", b"other").await, b"");
}

/// Facts of other names are other facts.
pub async fn facts_do_not_interfere(trial: Trial) {
    trial.set_fact("secret", b"s").await;
    assert_eq!(trial.fact_or("Secret", b"t").await, b"t");
    assert_eq!(trial.fact_or("secret ", b"u").await, b"u");
    assert_eq!(trial.fact_or("secret", b"v").await, b"s");
}
