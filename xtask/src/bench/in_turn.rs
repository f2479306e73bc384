//! Any bench in turn with an earlier daemon (`--in-turn ROUNDS`), whose binary `WEIR_BASELINE` names.
//!
//! A round runs the bench with both daemons, one after the other. In the bench `nbd` both run, in turns of a
//! second. The bench `scheduler` runs the examples beside the two daemons. The figures of each row are compared by the
//! median of the ratios of the rounds, so that a slow round cancels out. A figure is worse only if the difference exceeds
//! both a fixed part and the spread of the rounds. Rows of other servers are compared too, and not judged: they show how
//! much the machine changes by itself.
//!
//! A daemon may lack a figure in some rounds, because a limit is near what the machine reaches. Rounds that both have are
//! compared, if they are half of all at least. A figure is lost, and so worse, if the earlier daemon has it in half of the
//! rounds and the daemon now in half as many at most. Anything else is beyond the machine, and left out.
//!
//! Of two equal daemons, the median of five rounds of one lies outside the five rounds of the other in each direction in
//! a case of twelve: the three greatest of ten figures are all of one (10/120). A bench of hundreds of figures always
//! has such cases. So what looks worse, or is reached in fewer rounds, is measured again, alone and in twice as many
//! rounds, where the same happens by chance in a case of sixty. The second measurement decides.
//! [`WEIR_BASELINE`](BASELINE) may be the daemon itself: that run shows what a machine can tell apart.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{BASELINE, Bench, Options, nbd};
use crate::numbers::median;
use crate::report::{Report, print_table};

/// Least difference of medians that counts, as a fraction.
const DIFFERENCE_COUNTED: f64 = 0.03;

/// Figures that are compared, and whether more is better.
const FIGURES: [(&str, bool); 12] = [
    ("iops", true),
    ("replicas_iops", true),
    ("files_iops", true),
    ("completed", true),
    ("worst_second", true),
    ("p50_us", false),
    ("p99_us", false),
    ("processor_us_per_request", false),
    ("median_ns", false),
    ("mean_ns", false),
    ("p99_ns", false),
    ("bytes_per_workload", false),
];
/// Fields of a row that hold the server. Rows without them are Weir's.
const SERVER_FIELDS: [&str; 3] = ["server", "what", "peer"];

/// Figure of a row in each round, now and before. None means that the daemon did not have it in that round.
#[derive(Debug)]
struct Series {
    row: String,
    figure: String,
    /// Cell of the bench's matrix that the row is of, if the bench can measure it alone.
    cell: Option<String>,
    is_weir: bool,
    is_more_better: bool,
    rounds: [Vec<Option<f64>>; 2],
}

impl Series {
    /// Returns the figures of the rounds that both daemons have: now, and before.
    fn pairs(&self) -> Vec<(f64, f64)> {
        let [now, before] = &self.rounds;
        now.iter().zip(before).filter_map(|(now, before)| (*now).zip(*before)).collect()
    }

    /// Returns the number of rounds that have the figure: now, and before.
    fn counts(&self) -> [usize; 2] {
        self.rounds.each_ref().map(|rounds| rounds.iter().flatten().count())
    }

    /// Returns the figures before, of all rounds that have one.
    fn before(&self) -> impl Iterator<Item = f64> + Clone {
        self.rounds[1].iter().flatten().copied()
    }

    /// Sets the figure of one daemon in a round.
    fn set(&mut self, which: usize, round: usize, figure: f64) {
        let rounds = &mut self.rounds[which];
        if rounds.len() <= round {
            rounds.resize(round + 1, None);
        }
        rounds[round] = Some(figure);
    }

    /// True if the figure is one of Weir's. Bare files have one in the same row.
    fn is_judged(&self) -> bool {
        self.is_weir && self.figure != "files_iops"
    }
}

/// Figures of a bench, measured in a number of rounds with each daemon.
struct Measured {
    series: Vec<Series>,
    rounds: usize,
}

/// Rounds of the second measurement, for each of the first.
const ROUNDS_AGAIN: usize = 2;

/// Runs a bench `rounds` times with each daemon, and again for what looks worse then.
pub fn run(name: &str, bench: Bench, options: &Options, rounds: usize) -> Result<Report> {
    let before = std::env::var_os(BASELINE).map(PathBuf::from);
    let before = before.with_context(|| format!("{BASELINE} names no daemon to compare with"))?;
    ensure!(rounds > 0, "--in-turn needs at least one round");
    let binaries = [options.binary.as_path(), before.as_path()];
    let first = measure(name, bench, options, binaries, 0..rounds)?;
    let doubtful = first.doubtful();
    let second = match doubtful.is_empty() {
        true => None,
        false => {
            println!("### {} figures look worse, and are measured again\n", doubtful.len());
            let options = Options { cells: cells_of(&doubtful), ..options.clone() };
            Some(measure(name, bench, &options, binaries, rounds..rounds + ROUNDS_AGAIN * rounds)?)
        }
    };
    let mut report = Report::new(&format!("{name} in turn"));
    let table = judge_all(&first, second.as_ref(), &mut report);
    ensure!(!table.is_empty(), "bench '{name}' has no figure that can be compared");
    print_table(&["row", "figure", "now", "before", "ratio", "rounds of before"], table);
    Ok(report)
}

/// Runs a bench once with each daemon in each of the rounds, which differ in the order of the daemons.
fn measure(
    name: &str,
    bench: Bench,
    options: &Options,
    binaries: [&Path; 2],
    rounds: Range<usize>,
) -> Result<Measured> {
    let mut series = Vec::new();
    let count = rounds.len();
    for (index, round) in rounds.enumerate() {
        println!("### round {} of {count}\n", index + 1);
        let rows = match name {
            "nbd" => nbd::compare(options, binaries, round)?,
            _ => one_after_the_other(bench, options, binaries, round)?,
        };
        rows.iter().enumerate().for_each(|(which, rows)| add_rows(&mut series, which, index, rows));
    }
    Ok(Measured { series, rounds: count })
}

impl Measured {
    /// Returns the figures of Weir's that are worse, or reached in fewer rounds.
    fn doubtful(&self) -> Vec<&Series> {
        let is_doubtful = |series: &&Series| {
            let [now, before] = series.counts();
            let is_compared = reach(series, self.rounds) == Reach::Both;
            series.is_judged() && (now < before || is_compared && is_worse(series))
        };
        self.series.iter().filter(is_doubtful).collect()
    }

    /// Returns the same figure as another measurement's.
    fn same(&self, other: &Series) -> Option<&Series> {
        self.series.iter().find(|series| (&series.row, &series.figure) == (&other.row, &other.figure))
    }
}

/// Returns the cells of figures. None means all: that of a figure without a cell is not known.
fn cells_of(figures: &[&Series]) -> Vec<String> {
    let cells: Option<BTreeSet<String>> = figures.iter().map(|series| series.cell.clone()).collect();
    cells.into_iter().flatten().collect()
}

/// Judges all figures: those that looked worse at first by the second measurement, if that has them. Returns the rows of
/// the table.
fn judge_all(first: &Measured, second: Option<&Measured>, report: &mut Report) -> Vec<Vec<String>> {
    let doubtful = first.doubtful();
    let mut table = Vec::new();
    for series in &first.series {
        let is_doubtful = doubtful.iter().any(|doubtful| std::ptr::eq(*doubtful, series));
        let again =
            second.filter(|_| is_doubtful).and_then(|second| Some((second.same(series)?, second.rounds)));
        let (series, rounds) = again.unwrap_or((series, first.rounds));
        match reach(series, rounds) {
            Reach::Both => table.push(judge(series, report)),
            Reach::Lost => judge_lost(series, report),
            Reach::Beyond => println!("left out: {}, {}: out of reach", series.row, series.figure),
        }
    }
    table
}

/// Runs a bench with each daemon. Returns the rows of each.
fn one_after_the_other(
    bench: Bench,
    options: &Options,
    binaries: [&Path; 2],
    round: usize,
) -> Result<[Vec<Value>; 2]> {
    let mut rows = [Vec::new(), Vec::new()];
    // The daemon that begins changes, so that none always meets a machine at rest.
    for which in [round % 2, (round + 1) % 2] {
        println!("#### {}\n", ["now", "before"][which]);
        let report = bench(&Options { binary: binaries[which].to_owned(), ..options.clone() })?;
        rows[which] = report.rows().to_vec();
    }
    Ok(rows)
}

/// Adds the figures of one daemon in a round.
fn add_rows(all: &mut Vec<Series>, which: usize, round: usize, rows: &[Value]) {
    for (index, row) in rows.iter().enumerate() {
        // Two tables of a bench may have rows of one name.
        let earlier = rows[..index].iter().filter(|earlier| name_of(earlier) == name_of(row)).count();
        let number = if earlier == 0 { String::new() } else { format!(" ({})", earlier + 1) };
        for (figure, is_more_better) in FIGURES {
            for (suffix, value) in numbers(&row[figure]) {
                let (name, figure) = (name_of(row) + &number, format!("{figure}{suffix}"));
                let known = all.iter().position(|series| (&series.row, &series.figure) == (&name, &figure));
                let index = known.unwrap_or_else(|| {
                    let cell = row["cell"].as_str().map(str::to_owned);
                    let (is_weir, rounds) = (is_weirs(row), Default::default());
                    all.push(Series { row: name, figure, cell, is_weir, is_more_better, rounds });
                    all.len() - 1
                });
                all[index].set(which, round, value);
            }
        }
    }
}

/// Returns a number, or the numbers of an array, each with the text that tells it from the others.
fn numbers(value: &Value) -> Vec<(String, f64)> {
    match value {
        Value::Array(values) => {
            let all = values.iter().enumerate();
            all.filter_map(|(index, value)| Some((format!(" {}", index + 1), value.as_f64()?))).collect()
        }
        value => value.as_f64().map(|value| (String::new(), value)).into_iter().collect(),
    }
}

/// Returns the name of a row: its cell and server, or its texts, its queue depth and its number of workloads.
fn name_of(row: &Value) -> String {
    let is_of_cell = row["cell"].is_string();
    let names = |key: &str| !is_of_cell || key == "cell" || SERVER_FIELDS.contains(&key);
    let fields = row.as_object().into_iter().flatten().filter(|(key, _)| names(key));
    let words = fields.filter_map(|(key, value)| match value {
        Value::String(text) => Some(text.clone()),
        value if key == "depth" => Some(format!("QD{value}")),
        value if key == "workloads" => Some(format!("{value} workloads")),
        _ => None,
    });
    words.collect::<Vec<_>>().join(", ")
}

fn is_weirs(row: &Value) -> bool {
    let servers = SERVER_FIELDS.iter().filter_map(|field| row[field].as_str());
    servers.into_iter().all(|server| server.starts_with("weir"))
}

/// In which rounds the daemons have a figure. A cell of the matrix of ceilings may be out of a machine's reach.
#[derive(Debug, PartialEq, Eq)]
enum Reach {
    /// Both have it in half of the rounds at least.
    Both,
    /// The earlier daemon has it in half of the rounds, the daemon now in half as many at most.
    Lost,
    /// The rounds that both have are too few for a median.
    Beyond,
}

fn reach(series: &Series, rounds: usize) -> Reach {
    let [now, before] = series.counts();
    if 2 * now <= before && 2 * before >= rounds {
        Reach::Lost
    } else if 2 * series.pairs().len() >= rounds {
        Reach::Both
    } else {
        Reach::Beyond
    }
}

/// Judges a figure that the daemon now reaches no more: it is worse if it is Weir's.
fn judge_lost(series: &Series, report: &mut Report) {
    let Series { row, figure, .. } = series;
    let [now, before] = series.counts();
    let found = format!("reached in {now} rounds, after {before}");
    if series.is_judged() {
        report.claim(format!("{row}: {figure} not worse"), found, false);
    }
}

/// Returns the table row of a figure, and judges it if it is Weir's.
fn judge(series: &Series, report: &mut Report) -> Vec<String> {
    let Series { row, figure, .. } = series;
    let [now, before] = series.rounds.each_ref().map(|rounds| median(rounds.iter().flatten().copied()));
    let (ratio, spread) = (ratio(series), series.before());
    let (low, high) = (spread.clone().fold(f64::MAX, f64::min), spread.fold(0.0, f64::max));
    report.row(json!({"row": row, "figure": figure, "now": series.rounds[0], "before": series.rounds[1]}));
    if series.is_judged() {
        let found = format!("{now:.2} after {before:.2} ({low:.2} to {high:.2}), ratio {ratio:.3}");
        report.claim(format!("{row}: {figure} not worse"), found, !is_worse(series));
    }
    let numbers = [now, before].map(|figure| format!("{figure:.2}"));
    let cells = [row.clone(), figure.clone()].into_iter().chain(numbers);
    cells.chain([format!("{ratio:.3}"), format!("{low:.2} to {high:.2}")]).collect()
}

/// Returns the median of the ratios of now to before, of the rounds that both have.
fn ratio(series: &Series) -> f64 {
    let of = |(now, before)| if before == 0.0 { 1.0 } else { now / before };
    median(series.pairs().into_iter().map(of))
}

/// Returns true if the ratio is worse by a counted difference, and lies outside the rounds of before.
fn is_worse(series: &Series) -> bool {
    let (before, ratio) = (median(series.before()), ratio(series));
    let parts = series.before().map(|round| if before == 0.0 { 1.0 } else { round / before });
    if series.is_more_better {
        ratio < 1.0 - DIFFERENCE_COUNTED && ratio < parts.fold(f64::MAX, f64::min)
    } else {
        ratio > 1.0 + DIFFERENCE_COUNTED && ratio > parts.fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(is_more_better: bool, now: [f64; 3], before: [f64; 3]) -> Series {
        let rounds = [now, before].map(|rounds| rounds.map(Some).to_vec());
        Series { is_more_better, rounds, ..measured_in("r") }
    }

    /// Returns a figure that the daemons have in the first rounds only.
    fn reached(now: usize, before: usize) -> Series {
        Series { rounds: [vec![Some(1.0); now], vec![Some(1.0); before]], ..measured_in("r") }
    }

    fn measured_in(cell: &str) -> Series {
        Series {
            row: format!("cell {cell}"),
            figure: "iops".to_owned(),
            cell: Some(cell.to_owned()),
            is_weir: true,
            is_more_better: true,
            rounds: Default::default(),
        }
    }

    fn is_good(series: &Series) -> bool {
        let mut report = Report::new("test");
        judge(series, &mut report);
        report.finish(None).is_ok()
    }

    #[test]
    fn loss_beyond_the_spread_is_worse() {
        assert!(is_good(&series(true, [96.0; 3], [95.0, 100.0, 101.0])));
        assert!(is_good(&series(true, [98.0; 3], [99.0, 100.0, 101.0])));
        assert!(!is_good(&series(true, [94.0; 3], [95.0, 100.0, 101.0])));
        assert!(is_good(&series(false, [104.0; 3], [95.0, 100.0, 105.0])));
        assert!(!is_good(&series(false, [106.0; 3], [95.0, 100.0, 105.0])));
    }

    #[test]
    fn figure_that_is_reached_no_more_is_worse() {
        let reach_of = |now, before| reach(&reached(now, before), 10);
        assert_eq!(
            (reach_of(10, 10), reach_of(8, 10), reach_of(6, 10)),
            (Reach::Both, Reach::Both, Reach::Both)
        );
        assert_eq!(
            (reach_of(5, 10), reach_of(0, 5), reach_of(2, 5)),
            (Reach::Lost, Reach::Lost, Reach::Lost)
        );
        assert_eq!(
            (reach_of(0, 4), reach_of(4, 6), reach_of(10, 0)),
            (Reach::Beyond, Reach::Beyond, Reach::Beyond)
        );
        let mut report = Report::new("test");
        judge_lost(&reached(2, 5), &mut report);
        assert!(report.finish(None).is_err());
        let mut report = Report::new("test");
        judge_lost(&Series { is_weir: false, ..reached(2, 5) }, &mut report);
        judge(&series(true, [100.0; 3], [100.0; 3]), &mut report);
        assert!(report.finish(None).is_ok(), "other servers are not judged");
    }

    #[test]
    fn figure_reached_in_fewer_rounds_is_measured_again() {
        let is_doubtful = |series| !Measured { series: vec![series], rounds: 5 }.doubtful().is_empty();
        assert!(is_doubtful(reached(4, 5)) && is_doubtful(reached(0, 1)));
        assert!(!is_doubtful(reached(5, 4)) && !is_doubtful(reached(4, 4)));
        assert!(!is_doubtful(Series { is_weir: false, ..reached(4, 5) }));
    }

    #[test]
    fn figures_of_one_round_are_compared_with_each_other() {
        let rounds = [vec![Some(100.0), None, Some(50.0)], vec![None, Some(100.0), Some(50.0)]];
        let series = Series { rounds, ..measured_in("r") };
        assert_eq!((series.pairs(), series.counts()), (vec![(50.0, 50.0)], [2, 2]));
        assert!(is_good(&series));
    }

    #[test]
    fn second_measurement_of_what_looks_worse_decides() {
        let of = |cell, now: f64, before: usize, rounds: usize| Series {
            rounds: [vec![Some(now); rounds], vec![Some(100.0); before]],
            ..measured_in(cell)
        };
        let first = || Measured { series: vec![of("a", 90.0, 1, 1), of("b", 99.0, 1, 1)], rounds: 1 };
        let holds = |series: Vec<Series>| {
            let mut report = Report::new("test");
            judge_all(&first(), Some(&Measured { series, rounds: 2 }), &mut report);
            report.finish(None).is_ok()
        };
        assert_eq!(cells_of(&first().doubtful()), ["a"]);
        assert!(holds(vec![of("a", 99.0, 2, 2), of("b", 90.0, 2, 2)]), "what was good is not judged again");
        assert!(!holds(vec![of("a", 90.0, 2, 2)]));
        assert!(!holds(vec![]), "missing in the second measurement");
        assert!(!holds(vec![of("a", 99.0, 2, 1)]), "reached in half of the rounds only");
        let no_cell = Series { cell: None, ..of("c", 90.0, 1, 1) };
        assert_eq!(cells_of(&[&of("a", 90.0, 1, 1), &no_cell]), Vec::<String>::new());
    }

    #[test]
    fn a_slow_round_of_both_is_no_loss() {
        assert!(is_good(&series(true, [100.0, 50.0, 80.0], [100.0, 50.0, 82.0])));
        assert!(!is_good(&series(true, [94.0, 93.0, 75.0], [100.0, 98.0, 99.0])));
    }

    #[test]
    fn rows_of_one_name_are_one_series() {
        let mut all = Vec::new();
        let row = |iops: [u64; 2]| json!({"what": "weir", "load": "equal", "iops": iops, "busy": 0.5});
        add_rows(&mut all, 0, 0, &[row([1, 2])]);
        add_rows(&mut all, 1, 0, &[row([3, 4])]);
        let found: Vec<_> = all.iter().map(|series| (series.figure.as_str(), &series.rounds)).collect();
        let rounds = |now, before| [vec![Some(now)], vec![Some(before)]];
        assert_eq!(found, [("iops 1", &rounds(1.0, 3.0)), ("iops 2", &rounds(2.0, 4.0))]);
        assert_eq!(all[0].row, "equal, weir");
        let mut twice = Vec::new();
        add_rows(&mut twice, 0, 0, &[row([1, 2]), row([3, 4])]);
        assert_eq!((twice.len(), twice[3].row.as_str()), (4, "equal, weir (2)"));
        let cell = json!({"cell": "1IOPS QD1 read", "depth": 1, "pattern": "read", "server": "weir"});
        assert_eq!(name_of(&cell), "1IOPS QD1 read, weir");
        assert_eq!(name_of(&json!({"workloads": 1000, "median_ns": 40})), "1000 workloads");
        assert!(all[0].is_weir && is_weirs(&json!({"limit": "1IOPS"})));
        assert!(!is_weirs(&json!({"server": "nbdkit file"})) && !is_weirs(&json!({"peer": "QEMU"})));
    }
}
