//! Scheduler bench: cost of one scheduling decision, from a thousand to a million workloads.
//!
//! The simulator's example, which lies beside the daemon's binary, measures it in one process on one core. This bench shows
//! the example's figures and compares them with the promises.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Options;
use crate::report::{Report, grouped, print_table};
use crate::repository::repository_root;

/// Command that builds the example.
const BUILD: [&str; 5] = ["cargo", "build", "--release", "--package=weir-sim", "--example=scheduler"];
/// First columns, in this order. Other values that the example prints come after them.
const COLUMNS: [&str; 5] = ["workloads", "median_ns", "mean_ns", "p99_ns", "bytes_per_workload"];
/// Numbers of workloads between which the median may grow, and its largest growth.
const FEW: u64 = 1000;
const MANY: u64 = 1_000_000;
const GROWTH_MAX: f64 = 3.0;
/// Largest cost of a decision in nanoseconds, and largest size of a workload in bytes, with many workloads.
const MEDIAN_NS_MAX: f64 = 100.0;
const P99_NS_MAX: f64 = 1000.0;
const WORKLOAD_BYTES_MAX: f64 = 512.0;

/// Runs the example and judges its output. A quick run is not shorter: the example takes under a minute.
pub fn run(options: &Options) -> Result<Report> {
    build()?;
    let example = example_beside(&options.binary);
    let output = Command::new(&example).output();
    let output = output.with_context(|| {
        format!(
            "cannot run {}; in the tree of that daemon, '{}' makes it",
            example.display(),
            BUILD.join(" ")
        )
    })?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("the example scheduler ended with {}: {}", output.status, errors.trim());
    }
    let rows = read_rows(&String::from_utf8_lossy(&output.stdout))?;
    print_rows(&rows);
    let mut report = Report::new("scheduler");
    judge(&rows, &mut report)?;
    for row in rows {
        report.row(row);
    }
    Ok(report)
}

/// Builds the example of this tree. That of an earlier daemon must be there.
fn build() -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    let status = command.args(&BUILD[1..]).arg("--quiet").current_dir(repository_root()).status();
    ensure!(status.context("cannot run cargo")?.success(), "cannot build the example scheduler");
    Ok(())
}

/// Returns the example's place in the target folder that a daemon's binary lies in.
fn example_beside(binary: &Path) -> PathBuf {
    binary.with_file_name("examples").join("scheduler")
}

/// Reads one object from each line that holds one. Other lines are for people.
fn read_rows(text: &str) -> Result<Vec<Value>> {
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))).collect()
}

fn print_rows(rows: &[Value]) {
    let columns = columns_of(rows);
    let headings: Vec<String> = columns.iter().map(|column| column.replace('_', " ")).collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let cell = |value: &Value| value.as_f64().map_or_else(|| value.to_string(), grouped);
    let cells = |row: &Value| {
        let known = columns.iter().map(|column| row.get(column).map_or_else(|| "-".to_owned(), cell));
        known.collect::<Vec<_>>()
    };
    print_table(&headings, rows.iter().map(cells));
}

fn columns_of(rows: &[Value]) -> Vec<String> {
    let mut columns: Vec<String> = COLUMNS.map(str::to_owned).to_vec();
    for name in rows.iter().filter_map(Value::as_object).flat_map(|row| row.keys()) {
        if !columns.contains(name) {
            columns.push(name.clone());
        }
    }
    columns
}

/// Returns a figure from the row of a number of workloads.
fn figure(rows: &[Value], workloads: u64, name: &str) -> Result<f64> {
    let row = rows.iter().find(|row| row["workloads"].as_u64() == Some(workloads));
    let value = row.and_then(|row| row[name].as_f64());
    value.with_context(|| format!("the example printed no {name} for {workloads} workloads"))
}

fn judge(rows: &[Value], report: &mut Report) -> Result<()> {
    let median_ns = figure(rows, MANY, "median_ns")?;
    let p99_ns = figure(rows, MANY, "p99_ns")?;
    let workload_bytes = figure(rows, MANY, "bytes_per_workload")?;
    let growth = median_ns / figure(rows, FEW, "median_ns")?.max(1.0);
    let below = |found: f64, limit: f64, unit: &str| (format!("{found:.0} {unit}"), found < limit);
    let (found, holds) = below(median_ns, MEDIAN_NS_MAX, "ns");
    report.claim("a million workloads: median below 100 ns", found, holds);
    let (found, holds) = below(p99_ns, P99_NS_MAX, "ns");
    report.claim("a million workloads: 99th percentile below 1 µs", found, holds);
    let what = "from a thousand to a million workloads the median grows at most threefold";
    report.claim(what, format!("{growth:.2} times"), growth <= GROWTH_MAX);
    let (found, holds) = below(workload_bytes, WORKLOAD_BYTES_MAX, "bytes");
    report.claim("a million workloads: below 512 bytes each", found, holds);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FEW_LINE: &str =
        r#"{"workloads":1000,"median_ns":30,"mean_ns":31,"p99_ns":90,"bytes_per_workload":300}"#;

    fn judged(many: &str) -> Result<()> {
        let rows = read_rows(&format!("building\n{FEW_LINE}\n{many}\n"))?;
        let mut report = Report::new("test");
        judge(&rows, &mut report)?;
        report.finish(None)
    }

    #[test]
    fn each_bound_is_judged_by_itself() {
        let line = |median_ns: u64, p99_ns: u64, bytes: u64| {
            let row = json!({"workloads": MANY, "median_ns": median_ns, "p99_ns": p99_ns, "bytes_per_workload": bytes});
            row.to_string()
        };
        assert!(judged(&line(90, 999, 511)).is_ok());
        for (median_ns, p99_ns, bytes) in [(91, 999, 511), (90, 1000, 511), (90, 999, 512)] {
            let error = judged(&line(median_ns, p99_ns, bytes)).unwrap_err().to_string();
            assert!(error.contains("1 of 4"), "{error}");
        }
        let error = judged(&line(100, 999, 511)).unwrap_err().to_string();
        assert!(error.contains("2 of 4"), "{error}");
    }

    #[test]
    fn missing_figure_is_an_error() {
        let error = judged(r#"{"workloads":1000000,"p99_ns":1}"#).unwrap_err().to_string();
        assert!(error.contains("no median_ns for 1000000"), "{error}");
    }

    #[test]
    fn unknown_fields_come_last() {
        let rows = read_rows(&format!("{FEW_LINE}\n{{\"cold_ns\":7,\"workloads\":10}}")).unwrap();
        let columns = columns_of(&rows);
        assert_eq!(columns[..5], COLUMNS);
        assert_eq!(columns[5..], ["cold_ns"]);
    }
}
