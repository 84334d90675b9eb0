use super::*;
use proptest::prelude::*;

fn form(text: &str) -> Option<String> {
    canonical(text.as_bytes(), &[]).map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
}

#[test]
fn order_spacing_and_escapes_make_no_difference() {
    let plain = form(r#"{"amount":10,"name":"é/\""}"#);
    assert!(plain.is_some());
    assert_eq!(plain, form("{ \"name\" : \"\\u00e9\\/\\u0022\",\r\n\t\"amount\" : 10 }"));
    assert_eq!(form(r#""\ud83d\ude00""#), form("\"😀\""));
}

#[test]
fn members_are_sorted_by_their_names_as_written() {
    let text = r##"{"b":{"z":1,"y":{}},"":0,"#":1,"\u0022":2,"é":3,"a b":4,"a":5}"##;
    let expected = r##"{"":0,"#":1,"\"":2,"a":5,"a b":4,"b":{"y":{},"z":1},"é":3}"##;
    assert_eq!(form(text).as_deref(), Some(expected));
}

fn without(pointers: &[&str], text: &str) -> Option<String> {
    let parse = |pointer: &&str| JsonPointer::parse(pointer).expect("valid");
    let ignore: Vec<JsonPointer> = pointers.iter().map(parse).collect();
    canonical(text.as_bytes(), &ignore).map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
}

#[test]
fn what_is_ignored_is_as_good_as_absent() {
    let table: [(&[&str], &str, &str); 16] = [
        (&["/a"], r#"{"a":{"x":[1]},"b":2}"#, r#"{"b":2}"#),
        (&["/a"], r#"{"b":2}"#, r#"{"b":2}"#),
        (&["/a"], r#"{"a":1}"#, "{}"),
        (&["/a"], r#"{"b":{"a":1}}"#, r#"{"b":{"a":1}}"#),
        (&["/a"], r#"["a"]"#, r#"["a"]"#),
        (&["/a"], r#""a""#, r#""a""#),
        (&["/a/b", "/a/c"], r#"{"a":{"c":3,"b":2}}"#, r#"{"a":{}}"#),
        (&["/a/b", "/a"], r#"{"a":{"c":3,"b":2}}"#, "{}"),
        (
            &["/a~1b", "/~0", "/ü", "/\""],
            r#"{"a/b":1,"~":1,"\u00fc":1,"\"":1,"c":1}"#,
            r#"{"c":1}"#,
        ),
        (&["/"], r#"{"":1,"a":2}"#, r#"{"a":2}"#),
        (&["/0"], r#"["a","b","c"]"#, r#"["b","c"]"#),
        (&["/1"], r#"["a","b","c"]"#, r#"["a","c"]"#),
        (&["/2", "/0"], r#"["a","b","c"]"#, r#"["b"]"#),
        (&["/0", "/1", "/-"], r#"["a","b"]"#, "[]"),
        (&["/0"], r#"{"0":1,"1":2}"#, r#"{"1":2}"#),
        (&["/l/1/at"], r#"{"l":[{"at":1},{"at":2}]}"#, r#"{"l":[{"at":1},{}]}"#),
    ];
    for (pointers, text, expected) in table {
        assert_eq!(without(pointers, text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn what_is_ignored_may_not_be_in_doubt_either() {
    for text in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"a":{"b":1,"b":1}}"#,
        r#"{"a":01}"#,
        r#"{"a":"\ud800"}"#,
    ] {
        assert_eq!(without(&["/a"], text), None, "{text}");
    }
}

#[test]
fn number_tokens_are_kept_as_written() {
    let tokens = ["1", "1.0", "1e0", "10e-1", "-0", "0", "9007199254740993", "9007199254740992"];
    for (index, a) in tokens.iter().enumerate() {
        assert_eq!(form(a).as_deref(), Some(*a));
        for b in &tokens[index + 1..] {
            assert_ne!(form(a), form(b));
        }
    }
}

#[test]
fn what_could_mean_two_things_has_no_form() {
    let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    let doubtful = [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#""\ud800""#,
        r#""\ude00\ud83d""#,
        "01",
        "+1",
        ".5",
        "1.",
        "1e",
        "-",
        "NaN",
        "[1,]",
        "{\"a\":1,}",
        "\"\t\"",
        "'a'",
        "1 2",
        "",
        "tru",
        r#""\u+123""#,
        "\u{feff}1",
        &deep,
    ];
    for text in doubtful {
        assert_eq!(form(text), None, "{text}");
    }
    assert_eq!(canonical(b"\"\xff\"", &[]), None);
    assert!(form(&format!("{}1{}", "[".repeat(64), "]".repeat(64))).is_some());
}

proptest! {
    #[test]
    fn it_agrees_with_a_real_parser_on_the_meaning(text in json()) {
        let ours = form(&text).expect("generated JSON is plain");
        let theirs: serde_json::Value = serde_json::from_str(&text).expect("valid");
        let again: serde_json::Value = serde_json::from_str(&ours).expect("valid");
        prop_assert_eq!(theirs, again);
        prop_assert_eq!(form(&ours), Some(ours.clone()));
    }

    #[test]
    fn ignoring_what_is_not_there_changes_nothing(text in json()) {
        prop_assert_eq!(without(&["/no such name", "/0/no such name/0"], &text), form(&text));
    }

    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = canonical(&bytes, &[]);
    }
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(serde_json::Value::from),
        any::<String>().prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
    ];
    let value = leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    });
    (value, any::<bool>()).prop_map(|(value, pretty)| match pretty {
        true => serde_json::to_string_pretty(&value).expect("serialises"),
        false => value.to_string(),
    })
}
