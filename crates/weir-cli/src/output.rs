//! Output of answers: tables for people, JSON and YAML for programs.

use std::io::Write;

use comfy_table::{CellAlignment, ContentLineStyle, LineStyle, Table, TableStyle};
use serde::Serialize;

use super::arguments::Format;
use super::errors::CommandError;
use weir_client::Items;
use weir_types::{ByteRate, Size};

/// Writes a text to standard output.
pub fn print(text: &str) -> Result<(), CommandError> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        output.write_all(b"\n")?;
    }
    Ok(output.flush()?)
}

/// Writes an answer in the requested format; `table` lays out the format for people.
pub fn show<T: Serialize>(
    answer: &T,
    format: Format,
    table: impl FnOnce(&T) -> String,
) -> Result<(), CommandError> {
    let text = match format {
        Format::Table | Format::Wide => table(answer),
        Format::Json => serde_json::to_string_pretty(answer).map_err(CommandError::failed)?,
        Format::Yaml => yaml_serde::to_string(answer).map_err(CommandError::failed)?,
    };
    print(&text)
}

/// A column of a list of objects: its title, and its text for an object.
pub struct ListColumn<T> {
    title: Column,
    is_wide: bool,
    text: fn(&T) -> String,
}

impl<T> ListColumn<T> {
    /// A column of text, aligned to the left.
    pub const fn text(title: &'static str, text: fn(&T) -> String) -> ListColumn<T> {
        ListColumn { title: Column::Text(title), is_wide: false, text }
    }

    /// A column of numbers, aligned to the right.
    pub const fn number(title: &'static str, text: fn(&T) -> String) -> ListColumn<T> {
        ListColumn { title: Column::Number(title), is_wide: false, text }
    }

    /// A column of text that only the wide format shows.
    pub const fn wide_text(title: &'static str, text: fn(&T) -> String) -> ListColumn<T> {
        ListColumn { title: Column::Text(title), is_wide: true, text }
    }

    /// A column of numbers that only the wide format shows.
    pub const fn wide_number(title: &'static str, text: fn(&T) -> String) -> ListColumn<T> {
        ListColumn { title: Column::Number(title), is_wide: true, text }
    }
}

/// Writes a list of objects in the requested format. The wide format has all columns.
pub fn list<T: Serialize>(
    list: &Items<T>,
    format: Format,
    columns: &[ListColumn<T>],
) -> Result<(), CommandError> {
    show(list, format, |list| list_table(&list.items, columns, format == Format::Wide))
}

/// Lays out a list of objects as a table.
pub fn list_table<T>(items: &[T], columns: &[ListColumn<T>], is_wide: bool) -> String {
    let columns: Vec<_> = columns.iter().filter(|column| is_wide || !column.is_wide).collect();
    let titles: Vec<Column> = columns.iter().map(|column| column.title).collect();
    table(&titles, items.iter().map(|item| columns.iter().map(|column| (column.text)(item)).collect()))
}

/// Table style without borders; a line below the header, broken between the columns.
const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction(' '))
    .header_separator(LineStyle::none().fill('-').junction(' '))
    .content_lines(ContentLineStyle::none().junction(' '));

/// A column of a table.
#[derive(Clone, Copy)]
pub enum Column {
    /// Text, aligned to the left.
    Text(&'static str),
    /// A number, aligned to the right.
    Number(&'static str),
}

/// Lays out a table with a header and a line below it.
pub fn table(columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(columns.iter().map(|column| match column {
        Column::Text(title) | Column::Number(title) => *title,
    }));
    rows.into_iter().for_each(|row| {
        table.add_row(row);
    });
    for (column, layout) in columns.iter().zip(table.column_iter_mut()) {
        layout.set_padding((0, 0));
        if matches!(column, Column::Number(_)) {
            layout.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Lays out labels and values with the labels aligned to the right, as ONTAP does.
pub fn fields(width: usize, fields: &[(&str, String)]) -> String {
    fields.iter().map(|(label, value)| format!("{label:>width$}: {value}\n")).collect()
}

/// Width of a progress bar in characters.
const BAR_WIDTH: usize = 30;

/// A bar filled to a part from 0 to 1, with the percentage.
pub fn progress_bar(part: f64) -> String {
    let filled = (part * BAR_WIDTH as f64) as usize;
    format!("[{:<BAR_WIDTH$}] {:.0}%", "#".repeat(filled), part * 100.0)
}

/// A code as it is written in JSON.
pub fn word(code: impl Serialize) -> String {
    let value = serde_json::to_value(code).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).expect("a code is a word in JSON")
}

/// A size for people, for example `1.5GiB`.
pub fn rough_size(bytes: u64) -> String {
    Size(bytes).to_string()
}

/// A size as the tables of Portworx's status and service commands have it, for example `1.5 GiB`.
pub fn spaced_size(bytes: u64) -> String {
    let size = rough_size(bytes);
    let unit = size.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(size.len());
    format!("{} {}", &size[..unit], &size[unit..])
}

/// A size for people, or `-` if it is unknown.
pub fn optional_size(bytes: Option<u64>) -> String {
    bytes.map_or("-".to_owned(), rough_size)
}

/// A measured rate for people, for example `12.3MB/s`.
pub fn rough_rate(bytes_per_second: f64) -> String {
    ByteRate(bytes_per_second.round() as u64).measured()
}

/// A text, or `-` if there is none.
pub fn or_dash(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "-".to_owned())
}

/// A duration for people, for example `250us` or `1.25ms`; `-` for none.
pub fn rough_time(ns: Option<u64>) -> String {
    let Some(ns) = ns else { return "-".to_owned() };
    let value = ns as f64;
    match ns {
        1_000_000_000.. => format!("{:.2}s", value / 1e9),
        10_000_000.. => format!("{:.1}ms", value / 1e6),
        1_000_000.. => format!("{:.2}ms", value / 1e6),
        _ => format!("{:.0}us", value / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_list_has_more_columns() {
        const COLUMNS: [ListColumn<u64>; 3] = [
            ListColumn::number("Size", |size| size.to_string()),
            ListColumn::wide_text("Half", |size| (size / 2).to_string()),
            ListColumn::text("Twice", |size| (size * 2).to_string()),
        ];
        let lines = |is_wide| {
            let table = list_table(&[8], &COLUMNS, is_wide);
            table
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(false), ["Size Twice", "---- -----", "8 16"]);
        assert_eq!(lines(true), ["Size Half Twice", "---- ---- -----", "8 4 16"]);
    }

    #[test]
    fn values_are_shown_with_three_significant_digits() {
        assert_eq!(rough_size(9_765_625_000 << 10), "9.09TiB");
        assert_eq!(rough_size(8 << 30), "8GiB");
        assert_eq!(rough_rate(9_946_139.2), "9.95MB/s");
        assert_eq!(optional_size(None), "-");
    }
}
