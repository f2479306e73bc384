//! `weir operation`: commands about operations.

use weir_api_types::{Operation, OperationProgress, OperationState, ProgressUnit};
use weir_types::units::Size;

use crate::arguments::{OperationCommand, OperationFilter};
use crate::client::Client;
use crate::errors::CommandError;
use crate::output::{self, ListColumn};

/// Path of operations in the API.
const PATH: &str = "/v1/operations";
/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;
/// How long the daemon waits for the end before it answers, in seconds. Then it is asked again.
const WAIT_SECONDS: &str = "20";

/// Columns of the list.
const COLUMNS: &[ListColumn<Operation>] = &[
    ListColumn::text("Kind", |operation| output::word(operation.kind)),
    ListColumn::text("Object", |operation| operation.object.to_string()),
    ListColumn::text("State", |operation| output::word(operation.state)),
    ListColumn::text("Progress", |operation| progress(operation).unwrap_or_else(|| "-".to_owned())),
    ListColumn::text("Begun", |operation| operation.begun_at.to_string()),
    ListColumn::wide_text("Ended", |operation| {
        output::or_dash(&operation.ended_at.map(|ended| ended.to_string()))
    }),
    ListColumn::text("Reason", |operation| reason(operation).unwrap_or_else(|| "-".to_owned())),
    ListColumn::text("ID", |operation| operation.id.to_string()),
];

/// Runs a command about operations.
pub fn run(client: &Client, command: OperationCommand) -> Result<(), CommandError> {
    let (filter, read) = match command {
        OperationCommand::Show { id: Some(id), read } => {
            let operation: Operation = client.get(&format!("{PATH}/{id}"), &[])?;
            return output::show(&operation, read.output, description);
        }
        OperationCommand::Wait { id } => {
            let path = format!("{PATH}/{id}");
            return wait(|| client.get(&path, &[("wait_seconds", Some(WAIT_SECONDS))]));
        }
        OperationCommand::Cancel { id } => {
            return client.post::<Operation>(&format!("{PATH}/{id}/cancel"), &[], &()).map(|_| ());
        }
        OperationCommand::Show { id: None, read } => (OperationFilter::default(), read),
        OperationCommand::List { filter, read } => (filter, read),
    };
    let (kind, state) = (filter.kind.map(output::word), filter.state.map(output::word));
    let query = [("kind", kind.as_deref()), ("state", state.as_deref())];
    output::list(&client.list(PATH, &query)?, read.output, COLUMNS)
}

/// Waits until an operation has ended.
///
/// # Errors
/// If it was not done.
fn wait(mut ask: impl FnMut() -> Result<Operation, CommandError>) -> Result<(), CommandError> {
    loop {
        let operation = ask()?;
        match operation.state {
            OperationState::Running | OperationState::Blocked => {}
            OperationState::Succeeded => return Ok(()),
            OperationState::Failed | OperationState::Cancelled => {
                let reason = reason(&operation).map(|reason| format!(": {reason}")).unwrap_or_default();
                let (what, state) = (&operation.message, output::word(operation.state));
                return Err(CommandError::Failed(format!("{what}: {state}{reason}")));
            }
        }
    }
}

fn reason(operation: &Operation) -> Option<String> {
    operation.problem.as_ref().map(|problem| problem.message()).or_else(|| operation.reason.clone())
}

fn progress(operation: &Operation) -> Option<String> {
    let OperationProgress { unit, done, left } = operation.progress?;
    Some(match (unit, done) {
        (ProgressUnit::Percent, _) => format!("{}%", done.unwrap_or(0)),
        (ProgressUnit::Extents, _) => format!("{left} extents left"),
        (ProgressUnit::Bytes, Some(done)) => {
            format!("{} done, {} left", Size(done), Size(left))
        }
        (ProgressUnit::Bytes, None) => format!("{} left", Size(left)),
    })
}

fn description(operation: &Operation) -> String {
    let mut fields = vec![
        ("ID", operation.id.to_string()),
        ("Kind", output::word(operation.kind)),
        ("Object", operation.object.to_string()),
        ("Description", operation.message.clone()),
        ("State", output::word(operation.state)),
    ];
    fields.extend(reason(operation).map(|reason| ("Reason", reason)));
    fields.extend(progress(operation).map(|progress| ("Progress", progress)));
    fields.push(("Begun", operation.begun_at.to_string()));
    fields.extend(operation.ended_at.map(|ended| ("Ended", ended.to_string())));
    fields.push(("Can Be Cancelled", operation.can_be_cancelled.to_string()));
    output::fields(LABEL_WIDTH, &fields)
}

#[cfg(test)]
mod tests {
    use weir_api_types::{ObjectReference, OperationKind, Problem};

    use super::*;

    fn operation(state: OperationState) -> Operation {
        Operation {
            id: uuid::Uuid::nil(),
            kind: OperationKind::Drain,
            object: ObjectReference::daemon(),
            message: "drain of drive 'd'".to_owned(),
            state,
            reason: None,
            progress: None,
            can_be_cancelled: true,
            begun_at: jiff::Timestamp::UNIX_EPOCH,
            ended_at: None,
            request: None,
            result: None,
            problem: None,
        }
    }

    #[test]
    fn wait_asks_until_the_end_and_fails_with_the_reason() {
        use OperationState::{Blocked, Cancelled, Failed, Running, Succeeded};
        let mut states = vec![Succeeded, Blocked, Running];
        wait(|| Ok(operation(states.pop().unwrap()))).unwrap();
        assert_eq!(states, []);
        let error = |operation: Operation| wait(|| Ok(operation.clone())).unwrap_err().to_string();
        assert_eq!(error(operation(Cancelled)), "drain of drive 'd': cancelled");
        let problem = Problem::new(weir_api_types::ErrorCode::Full, "no space; add a drive");
        let failed = Operation { problem: Some(problem), ..operation(Failed) };
        assert_eq!(error(failed), "drain of drive 'd': failed: no space; add a drive");
    }

    #[test]
    fn progress_is_shown_in_its_unit() {
        let shown = |unit, done, left| {
            let progress = Some(OperationProgress { unit, done, left });
            super::progress(&Operation { progress, ..operation(OperationState::Running) }).unwrap()
        };
        assert_eq!(shown(ProgressUnit::Percent, Some(90), 10), "90%");
        assert_eq!(shown(ProgressUnit::Extents, None, 3), "3 extents left");
        assert_eq!(shown(ProgressUnit::Bytes, Some(1 << 20), 1 << 30), "1MiB done, 1GiB left");
    }
}
