//! Errors of commands: their text, their form for programs, and their exit status.

use std::ffi::OsString;
use std::process::ExitCode;

use serde::Serialize;

use super::arguments::Format;
use weir_api_types::{ErrorCode, Problem};
use weir_client::ClientError;

/// Exit status of a command that was refused or failed.
pub const FAILED: u8 = 1;
/// Exit status of a command line that is not understood.
pub const USAGE: u8 = 2;
/// Exit status if a named object does not exist.
pub const NOT_FOUND: u8 = 4;
/// Exit status if no daemon can be reached.
pub const NO_DAEMON: u8 = 5;

/// Failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line is not understood.
    #[error("{0}")]
    Usage(String),
    /// The daemon reported a failure, or something failed in the client.
    #[error("{0}")]
    Failed(String),
    /// A request to the daemon came to nothing.
    #[error(transparent)]
    Request(ClientError),
    /// The reader of the output has closed it.
    #[error("the output was closed")]
    OutputClosed,
}

impl CommandError {
    /// A failure in the client.
    pub fn failed(error: impl std::fmt::Display) -> CommandError {
        CommandError::Failed(error.to_string())
    }

    /// Returns the error with a place before the message, if the error is about the request.
    pub fn within(self, place: &impl std::fmt::Display) -> CommandError {
        match self {
            CommandError::Failed(message) => CommandError::Failed(format!("{place}: {message}")),
            CommandError::Request(ClientError::Answered(problem)) => {
                let detail = format!("{place}: {}", problem.detail);
                ClientError::Answered(Box::new(Problem { detail, ..*problem })).into()
            }
            error => error,
        }
    }

    /// True if the daemon answered with this code.
    pub fn is_answer(&self, code: ErrorCode) -> bool {
        self.problem().is_some_and(|problem| problem.code == code)
    }

    /// What the daemon said, if it refused a request or failed.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            CommandError::Request(error) => error.problem(),
            _ => None,
        }
    }
}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> CommandError {
        match error {
            ClientError::Address(message) => CommandError::Usage(message),
            error => CommandError::Request(error),
        }
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> CommandError {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => CommandError::OutputClosed,
            _ => CommandError::failed(error),
        }
    }
}

/// An error in the form for programs.
#[derive(Debug, Serialize)]
struct ErrorObject {
    error: ErrorFields,
}

#[derive(Debug, Serialize)]
struct ErrorFields {
    /// Code of the error; a word that stays the same across versions.
    code: &'static str,
    message: String,
    /// Field of the request that is not accepted, if one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    exit_status: u8,
}

impl CommandError {
    /// Exit status of the command, by kind of error.
    pub fn exit_status(&self) -> u8 {
        match self {
            CommandError::Usage(_) => USAGE,
            CommandError::Request(ClientError::Unreachable { .. }) => NO_DAEMON,
            error if error.is_answer(ErrorCode::NotFound) => NOT_FOUND,
            _ => FAILED,
        }
    }

    /// Code of the error: the code in the API's answer, or a word for a failure in the client.
    fn code(&self) -> &'static str {
        match self {
            CommandError::Usage(_) => "usage",
            CommandError::Request(ClientError::Answered(problem)) => problem.code.word(),
            CommandError::Request(ClientError::Unreachable { .. }) => "no_daemon",
            CommandError::Request(ClientError::TimedOut { .. }) => "timed_out",
            CommandError::Failed(_) | CommandError::Request(_) | CommandError::OutputClosed => "failed",
        }
    }

    fn field(&self) -> Option<String> {
        self.problem().and_then(|problem| problem.field.clone())
    }
}

/// Prints an error on standard error, and returns the exit status.
pub fn report(error: &CommandError, format: Format) -> ExitCode {
    eprintln!("{}", written(error, format).trim_end());
    ExitCode::from(error.exit_status())
}

fn written(error: &CommandError, format: Format) -> String {
    let (code, message, exit_status) = (error.code(), error.to_string(), error.exit_status());
    let object = ErrorObject { error: ErrorFields { code, message, field: error.field(), exit_status } };
    let words = || format!("weir: {error}");
    match format {
        Format::Table | Format::Wide => words(),
        Format::Json => serde_json::to_string_pretty(&object).unwrap_or_else(|_| words()),
        Format::Yaml => yaml_serde::to_string(&object).unwrap_or_else(|_| words()),
    }
}

/// The format that a command line requests, even if the command line is otherwise invalid.
pub fn asked_format(arguments: &[OsString]) -> Format {
    let words = arguments.iter().filter_map(|argument| argument.to_str());
    let words: Vec<String> = words.map(str::to_ascii_lowercase).collect();
    let asks = |format: &str| {
        let joined = ["-o", "-o=", "--output=", "-output="].map(|option| format!("{option}{format}"));
        let is_option = |word: &str| matches!(word, "-o" | "--output" | "-output");
        words.iter().any(|word| joined.contains(word))
            || words.windows(2).any(|pair| is_option(&pair[0]) && pair[1] == format)
    };
    match (asks("json"), asks("yaml")) {
        (true, _) => Format::Json,
        (_, true) => Format::Yaml,
        _ => Format::Table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_exit_status() {
        let answered = |code| CommandError::from(ClientError::Answered(Box::new(Problem::new(code, "no"))));
        let unreachable =
            ClientError::Unreachable { server: "unix:/x".to_owned(), reason: "gone".to_owned() };
        let timed_out = ClientError::TimedOut { server: "unix:/x".to_owned(), seconds: 120 };
        for (error, status, code) in [
            (CommandError::Usage("what".to_owned()), 2, "usage"),
            (CommandError::Failed("why".to_owned()), 1, "failed"),
            (answered(ErrorCode::NotFound), 4, "not_found"),
            (answered(ErrorCode::Refused), 1, "refused"),
            (answered(ErrorCode::Conflict), 1, "conflict"),
            (answered(ErrorCode::Full), 1, "full"),
            (unreachable.into(), 5, "no_daemon"),
            (timed_out.into(), 1, "timed_out"),
        ] {
            assert_eq!((error.exit_status(), error.code()), (status, code));
            let object: serde_json::Value = serde_json::from_str(&written(&error, Format::Json)).unwrap();
            assert_eq!(object["error"]["code"], code);
            assert_eq!(object["error"]["exit_status"], status);
            assert_eq!(object["error"]["message"], error.to_string());
            assert_eq!(written(&error, Format::Table), format!("weir: {error}"));
        }
    }

    #[test]
    fn format_is_read_from_an_invalid_command_line() {
        for (line, expected) in [
            ("weir volume cretae -o json", Format::Json),
            ("weir volume create --output=YAML", Format::Yaml),
            ("weir volume create -ojson", Format::Json),
            ("weir volume create json", Format::Table),
            ("weir volume record -o", Format::Table),
        ] {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(asked_format(&arguments), expected, "{line}");
        }
    }
}
