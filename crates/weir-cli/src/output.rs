//! Output of answers: tables for people, JSON and YAML for programs.

use std::io::Write;

use comfy_table::{CellAlignment, ContentLineStyle, LineStyle, Table, TableStyle};
use serde::Serialize;

use super::arguments::Format;
use super::client::CommandError;

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
        Format::Table => table(answer),
        Format::Json => serde_json::to_string_pretty(answer).map_err(CommandError::failed)?,
        Format::Yaml => yaml_serde::to_string(answer).map_err(CommandError::failed)?,
    };
    print(&text)
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

/// A size for people: three digits and a binary unit, for example `1.1 GiB`.
pub fn rough_size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 || value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

/// A rate for people, for example `12.3 MB/s`.
pub fn rough_rate(bytes_per_second: f64) -> String {
    let (value, unit) = match bytes_per_second {
        rate if rate >= 1e9 => (rate / 1e9, "GB/s"),
        rate if rate >= 1e6 => (rate / 1e6, "MB/s"),
        rate if rate >= 1e3 => (rate / 1e3, "kB/s"),
        rate => (rate, "B/s"),
    };
    format!("{value:.2}{unit}")
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
