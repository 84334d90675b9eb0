//! A route's path in pieces, as [`matchit`] reads it.

/// A piece of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// These characters.
    Fixed(String),
    /// `{name}`: anything up to the next slash.
    Parameter(String),
    /// `{*name}`: everything that follows.
    Rest(String),
}

/// The pieces of a pattern that was checked. Doubled braces stand for themselves.
pub(super) fn pieces(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '{' | '}' if characters.next_if_eq(&character).is_some() => piece.push(character),
            '{' => pieces.push(Piece::Fixed(std::mem::take(&mut piece))),
            '}' => {
                let name = std::mem::take(&mut piece);
                pieces.push(match name.strip_prefix('*') {
                    Some(rest) => Piece::Rest(rest.to_owned()),
                    None => Piece::Parameter(name),
                });
            }
            other => piece.push(other),
        }
    }
    pieces.push(Piece::Fixed(piece));
    pieces.retain(|piece| *piece != Piece::Fixed(String::new()));
    pieces
}

#[cfg(test)]
mod tests {
    use super::Piece::{Fixed, Parameter, Rest};
    use super::*;

    #[test]
    fn a_pattern_is_fixed_parts_and_parameters() {
        let table = [
            ("/v1/charges", vec![Fixed("/v1/charges".into())]),
            (
                "/v1/{id}/capture",
                vec![Fixed("/v1/".into()), Parameter("id".into()), Fixed("/capture".into())],
            ),
            ("/{*rest}", vec![Fixed("/".into()), Rest("rest".into())]),
            ("/{{a}}{b}}c}", vec![Fixed("/{a}".into()), Parameter("b}c".into())]),
        ];
        for (pattern, expected) in table {
            matchit::Router::new().insert(pattern, ()).expect("a pattern");
            assert_eq!(pieces(pattern), expected);
        }
    }
}
