//! Tables of fields in the reference: a test compares them with encoded examples.

/// A field of a documented format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset from the beginning of the table's part.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// Meaning of the field.
    pub content: String,
}

/// The fields of the table below a heading whose first column has this title. The rows must be in order,
/// without overlap.
///
/// # Panics
/// If the page has no such table, or a row is not understood.
pub fn fields(page: &str, heading: &str, first_column: &str) -> Vec<Field> {
    let title = format!("| {first_column} | bytes | content |");
    let lines = page.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading);
    let rows = lines.skip_while(|line| *line != title).skip(2).take_while(|line| line.starts_with('|'));
    let fields: Vec<Field> = rows.filter_map(field).collect();
    assert!(!fields.is_empty(), "there is no table '{title}' below '{heading}'");
    for pair in fields.windows(2) {
        assert!(pair[0].offset + pair[0].bytes <= pair[1].offset, "{pair:?} overlap");
    }
    fields
}

/// `None` for a row whose offset depends on a length before it.
fn field(row: &str) -> Option<Field> {
    let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
    let mut next = || cells.next().unwrap_or_else(|| panic!("'{row}' has three cells"));
    let (offset, bytes) = (next().parse().ok()?, next().trim_end_matches(" each").parse().ok()?);
    Some(Field { offset, bytes, content: next().to_owned() })
}

/// Checks that an encoded example has these bytes in the documented fields, in the order of the table, and zeros
/// in all other places.
///
/// # Panics
/// If a field is elsewhere, has another length, or is not named by a part of its content.
pub fn assert_fields(fields: &[Field], expected: &[(&str, &[u8])], example: &[u8]) {
    assert_eq!(fields.len(), expected.len(), "{fields:?}");
    let mut rest = example.to_vec();
    for (field, (name, bytes)) in fields.iter().zip(expected) {
        assert!(field.content.contains(name), "'{name}' is not in {field:?}");
        assert_eq!(field.bytes, bytes.len(), "{field:?}");
        assert_eq!(&example[field.offset..field.offset + field.bytes], *bytes, "{field:?}");
        rest[field.offset..field.offset + field.bytes].fill(0);
    }
    assert!(rest.iter().all(|byte| *byte == 0), "a byte that no table names is not zero");
}
