//! `weir top`: live activity of volumes.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table, TableState};

use super::arguments::TopArguments;
use super::client::Client;
use super::commands::statistics;
use super::errors::CommandError;
use super::output::{self, Column};
use super::rates::{Interval, VolumeActivity};
use weir_api_types::VolumeStatistics;

/// Titles and widths of the columns; the first two and the last are text.
const COLUMNS: [(&str, u16); 12] = [
    ("Volume", 24),
    ("Tenant", 12),
    ("Read IOPS", 10),
    ("Write IOPS", 10),
    ("Read", 11),
    ("Write", 11),
    ("Latency", 9),
    ("p99", 9),
    ("Queue", 6),
    ("Delayed", 8),
    ("Delay", 9),
    ("Policy Group", 20),
];

/// Shows the activity of volumes: live on a terminal, else as plain tables.
pub fn run(client: &Client, arguments: &TopArguments) -> Result<(), CommandError> {
    let sample = || statistics::sample(client, arguments.tenant.tenant.as_deref(), None);
    let is_plain = arguments.pace.iterations.is_some() || !std::io::stdout().is_terminal();
    if is_plain {
        return statistics::repeat(arguments.pace, sample, |interval| output::print(&plain(interval)));
    }
    // The first sample is read before the screen is taken over, so that an error is visible.
    let first = sample()?;
    let mut terminal = ratatui::try_init()?;
    let mut screen = Screen::new(first);
    let result = screen.run(&mut terminal, statistics::duration(arguments.pace), sample);
    ratatui::try_restore()?;
    result
}

/// Cells of one volume.
fn cells(volume: &VolumeActivity) -> Vec<String> {
    let mean_delay = volume.total.delayed_ns.checked_div(volume.total.operations);
    vec![
        volume.volume.clone(),
        volume.tenant.clone(),
        format!("{:.0}", volume.read.iops),
        format!("{:.0}", volume.write.iops),
        output::rough_rate(volume.read.bytes_per_second),
        output::rough_rate(volume.write.bytes_per_second),
        output::rough_time(volume.total.latency_mean_ns),
        output::rough_time(volume.total.p99_ns),
        volume.queue_depth.to_string(),
        volume.queue_depth_delayed.to_string(),
        output::rough_time(mean_delay),
        volume.qos_policy_group.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}

fn plain(interval: &Interval) -> String {
    let last = COLUMNS.len() - 1;
    let column = |(index, (title, _)): (usize, &(&'static str, u16))| match index {
        0 | 1 => Column::Text(title),
        index if index == last => Column::Text(title),
        _ => Column::Number(title),
    };
    let columns: Vec<_> = COLUMNS.iter().enumerate().map(column).collect();
    output::table(&columns, interval.volumes.iter().map(cells))
}

/// Action of the user.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Up,
    Down,
    Other,
}

impl From<KeyEvent> for Key {
    fn from(key: KeyEvent) -> Key {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
            KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
            KeyCode::Up | KeyCode::Char('k') => Key::Up,
            KeyCode::Down | KeyCode::Char('j') => Key::Down,
            _ => Key::Other,
        }
    }
}

/// The live table.
struct Screen {
    latest: VolumeStatistics,
    interval: Interval,
    problem: Option<String>,
    position: TableState,
}

impl Screen {
    fn new(first: VolumeStatistics) -> Screen {
        let interval = Interval::between(&first, &first);
        let position = TableState::default().with_selected(Some(0));
        Screen { latest: first, interval, problem: None, position }
    }

    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        interval: Duration,
        sample: impl Fn() -> Result<VolumeStatistics, CommandError>,
    ) -> Result<(), CommandError> {
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            if self.wait(terminal, Instant::now() + interval)? == Key::Quit {
                return Ok(());
            }
            self.refresh(sample());
        }
    }

    /// Handles keys until the next refresh is due.
    fn wait(&mut self, terminal: &mut DefaultTerminal, until: Instant) -> Result<Key, CommandError> {
        while event::poll(until.saturating_duration_since(Instant::now()))? {
            let Event::Key(key) = event::read()? else { continue };
            match Key::from(key) {
                Key::Quit => return Ok(Key::Quit),
                Key::Up => self.position.select_previous(),
                Key::Down => self.position.select_next(),
                Key::Other => {}
            }
            terminal.draw(|frame| self.draw(frame))?;
        }
        Ok(Key::Other)
    }

    /// Takes a new sample. If the daemon cannot be reached, the display shows the problem and continues.
    fn refresh(&mut self, sample: Result<VolumeStatistics, CommandError>) {
        match sample {
            Ok(later) => {
                self.interval = Interval::between(&self.latest, &later);
                self.latest = later;
                self.problem = None;
            }
            Err(error) => self.problem = Some(error.to_string()),
        }
    }

    fn draw(&mut self, frame: &mut ratatui::Frame<'_>) {
        let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(frame.area());
        frame.render_widget(Line::from(self.head()), head);
        let last = COLUMNS.len() - 1;
        let cell = |(index, text): (usize, String)| match index {
            index if index < 2 || index == last => Cell::from(text),
            _ => Cell::from(Line::from(text).right_aligned()),
        };
        let row = |texts: Vec<String>| Row::new(texts.into_iter().enumerate().map(cell));
        let header = row(COLUMNS.iter().map(|(title, _)| (*title).to_owned()).collect());
        let table = Table::new(
            self.interval.volumes.iter().map(|volume| row(cells(volume))),
            COLUMNS.iter().map(|(_, width)| Constraint::Length(*width)),
        );
        let table = table
            .header(header.style(Style::new().add_modifier(Modifier::REVERSED)))
            .row_highlight_style(Style::new().add_modifier(Modifier::BOLD));
        frame.render_stateful_widget(table, body, &mut self.position);
    }

    fn head(&self) -> String {
        let total = &self.interval.total;
        let problem = self.problem.as_deref().map(|problem| format!("  !! {problem}")).unwrap_or_default();
        format!(
            "weir top: {} volumes, {:.0} IOPS, {}, latency {}   (q quits){problem}",
            self.interval.volumes.len(),
            total.iops,
            output::rough_rate(total.bytes_per_second),
            output::rough_time(total.latency_mean_ns),
        )
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use weir_api_types::VolumeSample;

    #[test]
    fn screen_shows_volumes_and_problems() {
        let volume = VolumeSample {
            volume: "vol1".into(),
            tenant: "svm01".into(),
            queue_depth: 7,
            ..VolumeSample::default()
        };
        let mut screen = Screen::new(VolumeStatistics { timestamp_ns: 1, volumes: vec![volume] });
        screen.refresh(Err(CommandError::Failed("gone away".into())));
        let mut terminal = Terminal::new(TestBackend::new(160, 4)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let shown = terminal.backend().to_string();
        for text in ["weir top: 1 volumes", "gone away", "Read IOPS", "vol1", "svm01", " 7"] {
            assert!(shown.contains(text), "{text} in {shown}");
        }
    }

    #[test]
    fn q_escape_and_control_c_quit() {
        for (code, modifiers, key) in [
            (KeyCode::Char('q'), KeyModifiers::NONE, Key::Quit),
            (KeyCode::Esc, KeyModifiers::NONE, Key::Quit),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, Key::Quit),
            (KeyCode::Char('c'), KeyModifiers::NONE, Key::Other),
            (KeyCode::Down, KeyModifiers::NONE, Key::Down),
        ] {
            assert_eq!(Key::from(KeyEvent::new(code, modifiers)), key);
        }
    }
}
