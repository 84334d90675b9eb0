//! The contract in its forms: complete, true to its configuration, and silent about the rest.

use std::collections::BTreeSet;

use clap::ValueEnum;
use selfsame::Problem;
use serde_json::Value;

use super::*;

const DOCUMENTATION: &str = include_str!("../../../../docs/CONTRACT_PAGE.md");

const PLAIN: &str = "upstream = 'http://a'";

/// Something of everything.
const RICH: &str = r#"
upstream = "http://upstream-secret:3000"
public_url = "https://api.example.com"
secret_file = "/file-secret"
trusted_proxies = ["10.20.30.0/24"]
status = true
[store]
url = "file:/store-secret"
[admin]
listen = "127.0.0.1:9191"
token_file = "/token-secret"
[[route]]
match = "POST /v1/charges/{id}"
key = "required"
reject_older_than = "6d"
retention = "7d"
remember = "30d"
on_conflict = "wait"
wait_max = "30s"
[[route]]
match = "PUT,DELETE /v1/charges/{charge}"
key_headers = ["X-Token", "Idempotency-Key"]
strict = true
tenant = "cookie:sid"
headers = ["X-Shop"]
recover = "resume"
[[route]]
match = "/v1/files/{*path}"
max_request_body = "25MiB"
fingerprint = "raw"
tenant = "header:X-Account-Secret"
[[route]]
match = "POST /stripe"
profile = "stripe"
key = "required"
key_pointer = "/idempotency_key"
format = "uuid"
scope = "endpoint"
stream = true
replay_set_cookie = true
on_store_error = "bypass"
[[route]]
match = "POST /off"
key = "off"
[[route]]
host = "eu.example.com"
match = "POST /v1/charges/{id}"
ignore = ["/sent_at", "/a`b|c"]
[[route]]
host = "*.example.com"
match = "POST /v1/refunds"
[[route]]
match = '''POST /a'&amp'''
ignore = ['''/a|b`c"><script>alert('x')<~1script>&amp;''']
tenant = "none"
server_errors = "hold"
max_response_body = "5KiB"
response_timeout = "5s"
"#;

fn contract(toml: &str) -> Contract {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), toml).expect("written");
    Contract::of(&Config::load(Some(file.path()), &Default::default()).expect("valid"))
}

fn render(toml: &str, form: Form) -> String {
    contract(toml).render(form)
}

fn json(toml: &str, form: Form) -> Value {
    serde_json::from_str(&render(toml, form)).expect("JSON")
}

#[test]
fn every_problem_is_in_every_form() {
    for toml in [PLAIN, RICH] {
        let [markdown, html] = [Form::Markdown, Form::Html].map(|form| render(toml, form));
        let [json, openapi] = [Form::Json, Form::Openapi].map(|form| json(toml, form));
        let types = json["problems"].as_array().expect("a list");
        for problem in Problem::ALL {
            let slug = problem.slug();
            assert_eq!(markdown.matches(&format!("\n### {slug}\n")).count(), 1, "{slug}");
            assert_eq!(html.matches(&format!("<article id=\"{slug}\"")).count(), 1, "{slug}");
            let listed = types.iter().filter(|entry| entry["slug"] == slug).count();
            assert_eq!(listed, 1, "{slug}");
            let type_uri = problem.type_uri(json["page"].as_str().expect("an address"));
            let responses = openapi["components"]["responses"].to_string();
            assert!(responses.contains(&format!("\"{type_uri}\"")), "{slug}");
        }
    }
}

#[test]
fn statuses_and_advice_are_those_of_the_answers() {
    let json = json(RICH, Form::Json);
    let problem = |slug: &str| {
        let all = json["problems"].as_array().expect("a list");
        all.iter().find(|entry| entry["slug"] == slug).expect("listed").clone()
    };
    assert_eq!(problem("key-reused")["status"]["ietf"], 422);
    assert_eq!(problem("key-reused")["status"]["stripe"], 400);
    assert_eq!(problem("in-progress")["retryable"], true);
    assert_eq!(problem("in-progress")["retry_after"], true);
    assert_eq!(problem("outcome-unknown")["retryable"], false);
    assert_eq!(problem("upstream-failed")["retryable"], Value::Null);
    assert_eq!(problem("key-expired")["used"], true);
    let html = render(RICH, Form::Html);
    assert!(html.contains("<span>422 or 400</span>"), "both profiles are in use");
    assert!(render(PLAIN, Form::Html).contains("<span>422</span>"));
}

#[test]
fn what_comes_after_a_keys_time_is_told_as_it_is() {
    let remembered = format!("{PLAIN}\n[idempotency]\nremember = '30d'");
    for (toml, said, unsaid) in [
        (PLAIN, "After that it is new again", "after that it is refused"),
        (&remembered, "For 30 days after that it is refused", "After that it is new"),
    ] {
        let markdown = render(toml, Form::Markdown);
        let unbroken = markdown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unbroken.contains(said) && !unbroken.contains(unsaid), "{markdown}");
        let json = json(toml, Form::Json);
        let mut problems = json["problems"].as_array().expect("a list").iter();
        let expired = problems.find(|entry| entry["slug"] == "key-expired").expect("listed");
        assert_eq!(expired["used"], true, "a person may have any key erased");
    }
}

#[test]
fn what_comes_after_a_crash_is_told_as_it_is() {
    let interrupted = |toml: &str| {
        let rules = json(&format!("upstream = 'http://a'\n{toml}"), Form::Json);
        rules["default"]["interrupted"].as_str().map(str::to_owned)
    };
    let points = "[checkpoints]\nlisten = '127.0.0.1:9'\n";
    let hold = format!("{points}[idempotency]\nrecover = 'hold'");
    assert_eq!(interrupted("").as_deref(), Some("hold"), "nobody can note anything");
    assert_eq!(interrupted(points).as_deref(), Some("resume_if_noted"));
    assert_eq!(interrupted(&hold).as_deref(), Some("hold"));
    let page = render(&format!("upstream = 'http://a'\n{points}"), Form::Markdown);
    assert!(page.contains("has noted how far it came"), "{page}");
}

#[test]
fn every_link_leads_somewhere() {
    for toml in [PLAIN, RICH] {
        let html = render(toml, Form::Html);
        for target in html.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(html.contains(&format!(" id=\"{target}\"")), "{target}");
        }
        let markdown = render(toml, Form::Markdown);
        for target in markdown.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(markdown.contains(&format!("### {target}\n")), "{target}");
        }
    }
}

/// Checks that what is opened is closed, in order, and gives the ids on the way.
fn ids_of_balanced(html: &str) -> Vec<&str> {
    let mut open = Vec::new();
    let mut ids = Vec::new();
    for tag in html.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "{text}");
        let name = tag.split_whitespace().next().expect("a name");
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if ["!doctype", "meta", "wbr"].contains(&name) => {}
            None => open.push(name),
        }
        ids.extend(tag.split(" id=\"").nth(1).and_then(|rest| rest.split('"').next()));
    }
    assert_eq!(open, Vec::<&str>::new());
    ids
}

#[test]
fn html_is_whole_whatever_a_route_is_called() {
    let html = render(RICH, Form::Html);
    // The style is no markup.
    let (head, rest) = html.split_once("<style>").expect("a style");
    let (_, body) = rest.split_once("</style>").expect("its end");
    let page = format!("{head}{body}");
    let ids = ids_of_balanced(&page);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "no id comes twice");
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("@import"));
    let escaped = "b`c&quot;&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;~1script&gt;&amp;amp;";
    assert!(page.contains(escaped) && page.contains("/a&#39;&amp;amp"), "{page}");
}

#[test]
fn markdown_keeps_a_row_whole_whatever_a_route_is_called() {
    let markdown = render(RICH, Form::Markdown);
    let row = markdown.lines().find(|line| line.contains("script")).expect("the route");
    assert!(row.contains("``/a\\|b`c\"><script>"), "{row}");
    assert_eq!(row.replace("\\|", "").matches('|').count(), 4, "{row}");
}

#[test]
fn no_form_tells_more_than_clients_may_know() {
    for form in Form::value_variants() {
        let text = render(RICH, *form).to_lowercase();
        for told in ["-secret", "10.20.30", "9191", "127.0.0.1", ":3000"] {
            assert!(!text.contains(told), "{told} in {form:?}");
        }
        assert!(text.ends_with('\n'), "{form:?}");
    }
}

#[test]
fn a_route_tells_what_differs_from_the_defaults() {
    let markdown = render(RICH, Form::Markdown);
    let row = |path: &str| {
        let path = format!("`{path}`");
        markdown.lines().find(|line| line.contains(&path)).expect("a row").to_owned()
    };
    assert_eq!(
        row("/v1/charges/{id}"),
        "| POST `/v1/charges/{id}` | required | UUIDs of version 7 no older than 6 days<br>keys last 7 days, and are refused for 30 days more<br>a \
         retry waits for a running attempt<br>waits up to 30 seconds |"
    );
    let put = row("/v1/charges/{charge}");
    for said in ["PUT, DELETE", "`X-Token` or `Idempotency-Key`", "quoted", "`sid`", "`X-Shop`"] {
        assert!(put.contains(said), "{said}: {put}");
    }
    for said in
        ["Stripe's error objects", "or `/idempotency_key` in the body", "keys: A UUID with hyphens"]
    {
        assert!(row("/stripe").contains(said), "{said}: {}", row("/stripe"));
    }
    let host = row("eu.example.com/v1/charges/{id}");
    for said in ["by their meaning without `/sent_at` and ``/a`b\\|c``", "another host"] {
        assert!(host.contains(said), "{said}: {host}");
    }
    assert_eq!(row("/off"), "| POST `/off` | ignored | – |");
}

#[test]
fn the_example_is_a_request_that_needs_a_key() {
    let shell = example::shell(&contract(RICH));
    assert!(shell.contains("curl -i https://api.example.com/v1/charges/ID"), "{shell}");
    assert!(shell.contains("-H \"Idempotency-Key: $KEY\""), "{shell}");
    let other = "upstream = 'http://a'\n[[route]]\nmatch = 'DELETE /a'\nkey_headers = ['X-Token']\n\
        strict = true\ntenant = 'cookie:sid'";
    let shell = example::shell(&contract(other));
    for said in ["-X DELETE", r#"-H "X-Token: \"$KEY\"""#, "'Cookie: sid=…'"] {
        assert!(shell.contains(said), "{said}: {shell}");
    }
    assert!(!shell.contains(" -d "), "{shell}");
    let host = "upstream = 'http://a'\n[[route]]\nmatch = 'POST /a'\nhost = '*.example.com'";
    let shell = example::shell(&contract(host));
    assert!(shell.contains("curl -i https://NAME.example.com/a "), "{shell}");
}

/// Every `$ref` below `value`.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_reference_of_the_openapi_fragment_resolves() {
    for toml in [PLAIN, RICH] {
        let document = json(toml, Form::Openapi);
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("within the document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}

#[test]
fn the_openapi_fragment_has_an_operation_for_each_keyed_method() {
    let document = json(RICH, Form::Openapi);
    let paths = document["paths"].as_object().expect("paths");
    let names: Vec<&str> = paths.keys().map(String::as_str).collect();
    let status = "/.well-known/idempotency/status";
    let expected = [status, "/a'&amp", "/stripe", "/v1/charges/{id}"];
    assert_eq!(names, expected, "keys are ignored on /off");

    // Two routes that differ only in a parameter's name are one path.
    let item = paths["/v1/charges/{id}"].as_object().expect("an item");
    assert_eq!(item.keys().collect::<Vec<_>>(), ["delete", "post", "put"]);
    assert_eq!(item["put"]["parameters"][0]["name"], "id");
    let keys = [("post", "IdempotencyKey"), ("put", "OptionalQuotedXToken")];
    for (method, name) in keys {
        let reference = format!("#/components/parameters/{name}");
        assert_eq!(item[method]["parameters"][1]["$ref"], reference);
        let required = &document["components"]["parameters"][name]["required"];
        assert_eq!(*required, method == "post", "{name}");
    }
    assert_eq!(
        item["post"]["responses"]["422"]["$ref"], "#/components/responses/KeyReused",
        "a status of one problem"
    );
    assert_eq!(item["post"]["responses"]["409"]["$ref"], "#/components/responses/Status409");
    // Where the body may have the key, no header is required.
    let key = paths["/stripe"]["post"]["parameters"][0]["$ref"].as_str().expect("a reference");
    let key = document.pointer(key.strip_prefix('#').expect("within")).expect("there");
    assert_eq!(key["required"], false);
    assert!(key["description"].as_str().expect("a text").contains("`/idempotency_key`"), "{key}");
    assert!(key["schema"]["pattern"].as_str().expect("a text").contains("{12}"), "{key}");
    let stripe = &paths["/stripe"]["post"]["responses"];
    assert_eq!(stripe["400"]["$ref"], "#/components/responses/StripeStatus400");
    assert!(stripe.get("422").is_none());
    let description = document["info"]["description"].as_str().expect("a text");
    for left_out in
        ["/v1/files/{*path}", "POST eu.example.com/v1/charges/{id}", "*.example.com/v1/refunds"]
    {
        assert!(description.contains(left_out), "{left_out}: {description}");
    }
}

#[test]
fn every_member_of_the_json_form_is_documented() {
    fn names<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, value)| {
                found.insert(name);
                names(value, found);
            }),
            Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            _ => {}
        }
    }
    let document = json(RICH, Form::Json);
    let mut found = BTreeSet::new();
    names(&document, &mut found);
    for name in found {
        assert!(DOCUMENTATION.contains(&format!("`{name}`")), "{name} is not in CONTRACT_PAGE.md");
    }
    assert_eq!(document["version"], 1);
}
