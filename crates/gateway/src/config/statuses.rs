//! `final_statuses`, `transient_statuses` and `unknown_statuses`: lists of numbers and classes.

use selfsame::StatusPattern;
use toml::de::DeValue;

use super::file::Section;
use super::settings::RouteSettings;
use super::values::{Kind, Wrong, integer, text};

const STATUS: Kind<StatusPattern> = Kind {
    expected: r#"a status from 200 to 599, or a class like "4xx""#,
    read: |value| match value {
        DeValue::Integer(_) => {
            let number = u16::try_from(integer(value)?).map_err(|_| Wrong::Form)?;
            StatusPattern::status(number).map_err(|_| Wrong::Form)
        }
        _ => StatusPattern::class(text(value)?).map_err(|_| Wrong::Form),
    },
};

const TRANSIENT_STATUS: Kind<StatusPattern> = Kind {
    expected: r#"a status from 300 to 599, or a class like "4xx""#,
    read: |value| match (STATUS.read)(value)? {
        success if success.is_success() => Err(Wrong::Because(format!(
            "{success} says that the work was done; were its key freed, a retry would do it again"
        ))),
        status => Ok(status),
    },
};

/// Reads the lists. A table's own lists go before those it takes over, and no two of
/// them may name the same.
pub(super) fn read(settings: &mut RouteSettings, section: &mut Section<'_>) {
    section.set_list("final_statuses", &STATUS, &mut settings.final_statuses);
    section.set_list("transient_statuses", &TRANSIENT_STATUS, &mut settings.transient_statuses);
    section.set_list("unknown_statuses", &STATUS, &mut settings.unknown_statuses);
    let mut lists = [
        ("final_statuses", &mut settings.final_statuses),
        ("transient_statuses", &mut settings.transient_statuses),
        ("unknown_statuses", &mut settings.unknown_statuses),
    ];
    for (left, right) in [(0, 1), (0, 2), (1, 2)] {
        let [(one, ones), (other, others)] =
            lists.get_disjoint_mut([left, right]).expect("two of three");
        let is_own = |name: &'static str| section.blame(&[name]).is_some();
        match (is_own(one), is_own(other)) {
            (true, true) => {
                if let Some(status) = ones.iter().find(|status| others.contains(status)) {
                    let text = format!("{one} and {other} disagree about {status}");
                    section.clash(&[one, other], text);
                }
            }
            (true, false) => others.retain(|status| !ones.contains(status)),
            (false, true) => ones.retain(|status| !others.contains(status)),
            (false, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_number_or_a_class() {
        let take = |toml: &str| {
            let value = DeValue::parse(toml).expect("TOML");
            STATUS.take(value.get_ref()).map(|status| status.to_string())
        };
        assert_eq!((take("404"), take("'5xx'")), (Ok("404".into()), Ok("5xx".into())));
        for wrong in ["'404'", "99", "600", "70000", "-1", "'1xx'", "'4XX'", "true"] {
            assert!(
                take(wrong).is_err_and(|text| text.starts_with("expected a status")),
                "{wrong}"
            );
        }
        let success = DeValue::parse("201").expect("TOML");
        let said = TRANSIENT_STATUS.take(success.get_ref()).expect_err("it was done");
        assert!(said.starts_with("201 says that the work was done"), "{said}");
    }
}
