//! Report of a bench or the demo: tables for people, numbers for programs, and verdicts on the claims.

use std::path::Path;

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

/// Largest number of claims that are all shown. Of more claims, only the failed ones are shown.
const SHOWN_MAX: usize = 20;

/// Collection of rows and claims.
pub struct Report {
    name: String,
    rows: Vec<Value>,
    claims: Vec<Claim>,
}

struct Claim {
    what: String,
    found: String,
    holds: bool,
}

impl Report {
    /// Creates an empty report.
    pub fn new(name: &str) -> Report {
        Report { name: name.to_owned(), rows: Vec::new(), claims: Vec::new() }
    }

    /// Adds a row for programs.
    pub fn row(&mut self, row: Value) {
        self.rows.push(row);
    }

    /// Returns the rows so far.
    pub fn rows(&self) -> &[Value] {
        &self.rows
    }

    /// Adds a claim with its result.
    pub fn claim(&mut self, what: impl Into<String>, found: impl Into<String>, holds: bool) {
        self.claims.push(Claim { what: what.into(), found: found.into(), holds });
    }

    /// Prints the claims, writes the file if one is wanted, and fails if a claim does not hold. Of very many
    /// claims, it prints only the failed ones.
    pub fn finish(self, file: Option<&Path>) -> Result<()> {
        let failed = self.claims.iter().filter(|claim| !claim.holds).count();
        for claim in self.claims.iter().filter(|claim| !claim.holds || self.claims.len() <= SHOWN_MAX) {
            println!("{}  {}: {}", if claim.holds { "PASS" } else { "FAIL" }, claim.what, claim.found);
        }
        if let Some(path) = file {
            let text = serde_json::to_string_pretty(&self.to_json())?;
            std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
        }
        println!("{} of {} claims hold", self.claims.len() - failed, self.claims.len());
        if failed > 0 {
            bail!("{}: {failed} of {} claims do not hold", self.name, self.claims.len());
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let claim = |claim: &Claim| json!({"claim": claim.what, "found": claim.found, "holds": claim.holds});
        let claims: Vec<Value> = self.claims.iter().map(claim).collect();
        json!({"name": self.name, "rows": self.rows, "claims": claims})
    }
}

/// Prints a table, with the first column aligned to the left and numbers to the right.
pub fn print_table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(headings.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(if index == 0 { CellAlignment::Left } else { CellAlignment::Right });
    }
    println!("{table}\n");
}

/// Returns a whole number with blanks between the thousands.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Returns microseconds as milliseconds, or a dash if nothing was measured.
pub fn milliseconds(microseconds: f64) -> String {
    if microseconds > 0.0 { format!("{:.3}", microseconds / 1000.0) } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_claim_fails_the_report() {
        let mut report = Report::new("test");
        report.claim("one is one", "1", true);
        assert!(report.finish(None).is_ok());
        let mut report = Report::new("test");
        report.claim("one is two", "1", false);
        assert!(report.finish(None).is_err());
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(1_234_567.4), "1 234 567");
        assert_eq!(grouped(12.0), "12");
    }
}
