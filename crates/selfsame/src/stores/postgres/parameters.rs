//! The types of a statement's parameters, which its text says: `$1::bigint`, `$2::bytea[]`.
//!
//! Behind a pooler nothing can be prepared, so the server cannot be asked for them.

use tokio_postgres::types::Type;

const NAMES: [(&str, Type, Type); 6] = [
    ("bigint", Type::INT8, Type::INT8_ARRAY),
    ("boolean", Type::BOOL, Type::BOOL_ARRAY),
    ("bytea", Type::BYTEA, Type::BYTEA_ARRAY),
    ("integer", Type::INT4, Type::INT4_ARRAY),
    ("smallint", Type::INT2, Type::INT2_ARRAY),
    ("text", Type::TEXT, Type::TEXT_ARRAY),
];

/// The type of each parameter, in their order.
pub(super) fn types(sql: &str) -> Vec<Type> {
    let mut types: Vec<Option<Type>> = Vec::new();
    for parameter in sql.split('$').skip(1) {
        let digits = parameter.bytes().take_while(u8::is_ascii_digit).count();
        let Ok(number @ 1..) = parameter[..digits].parse::<usize>() else { continue };
        types.resize(types.len().max(number), None);
        if let Some(cast) = parameter[digits..].strip_prefix("::") {
            types[number - 1] = Some(named(cast));
        }
    }
    let said = |each: Option<Type>| each.expect("each parameter is once written with its type");
    types.into_iter().map(said).collect()
}

fn named(cast: &str) -> Type {
    let is = |name: &str| cast.strip_prefix(name);
    let named = NAMES.iter().find_map(|(name, one, many)| {
        is(name).map(|rest| if rest.starts_with("[]") { many } else { one }.clone())
    });
    named.expect("a parameter is of a type that is known here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_says_the_types_of_its_parameters() {
        let sql = "select $2::text, $1 = any($1::bytea[]) where $3::smallint > 1 and x = $2";
        assert_eq!(types(sql), [Type::BYTEA_ARRAY, Type::TEXT, Type::INT2]);
        assert_eq!(types("select 1"), []);
    }
}
