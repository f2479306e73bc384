//! Lists of objects, as the API gives them and programs read them.

use serde::{Deserialize, Serialize};

/// A whole list, as programs read it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Items<T> {
    /// The objects, in the order of the API.
    pub items: Vec<T>,
}
