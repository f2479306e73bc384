//! Metrics in the text form of Prometheus.

use crate::control::{Control, ControlError, Outcome};

/// The media type of what [`render`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes all metrics as they stand.
pub fn render(_control: &Control) -> Outcome<String> {
    Err(ControlError::internal("not yet"))
}
