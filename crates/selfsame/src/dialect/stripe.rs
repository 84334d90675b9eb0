//! Stripe's error object.

use selfsame_core::{Problem, ProblemDetails};
use serde_json::json;

/// The body of a refusal, as Stripe's SDKs read it.
pub(super) fn error(details: &ProblemDetails, contract_page: &str) -> Vec<u8> {
    let problem = details.problem;
    let mut error = details.members.clone();
    error.insert("type".into(), kind(problem).into());
    error.insert("code".into(), code(problem).into());
    error.insert("message".into(), format!("{}: {}", problem.title(), details.detail).into());
    error.insert("doc_url".into(), problem.type_uri(contract_page).into());
    let mut json = serde_json::to_vec(&json!({ "error": error })).expect("plain values are JSON");
    json.push(b'\n');
    json
}

fn kind(problem: Problem) -> &'static str {
    match problem {
        Problem::KeyReused
        | Problem::OutcomeUnknown
        | Problem::ResponseNotKept
        | Problem::KeyExpired => "idempotency_error",
        _ if problem.status().is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}

fn code(problem: Problem) -> String {
    match problem {
        Problem::InProgress => "idempotency_key_in_use".into(),
        _ => problem.slug().replace('-', "_"),
    }
}
