//! The way in which the data plane carries out operations on files, and why.

use weir_api_types::IoMethod;

/// The way, and the reason if it is not io_uring.
pub(crate) struct ChosenIo {
    pub method: IoMethod,
    pub reason: Option<String>,
}

impl ChosenIo {
    /// Takes the configured way, or else the best one that this host allows.
    pub fn new(configured: Option<IoMethod>) -> ChosenIo {
        let best = || {
            let (method, reason) = weir_engine::IoMethod::best();
            let reason = reason.map(|reason| reason.to_string());
            let method = match method {
                weir_engine::IoMethod::Uring => IoMethod::IoUring,
                weir_engine::IoMethod::Threads => IoMethod::Threads,
            };
            ChosenIo { method, reason }
        };
        let chosen = match configured {
            None => best(),
            Some(IoMethod::IoUring) => ChosenIo { method: IoMethod::IoUring, reason: None },
            Some(IoMethod::Threads) => {
                ChosenIo { method: IoMethod::Threads, reason: Some("it is configured".to_owned()) }
            }
        };
        if let Some(reason) = &chosen.reason {
            tracing::warn!(
                reason,
                "threads carry out all I/O, which takes more processor time than io_uring"
            );
        }
        chosen
    }

    /// The way, as the engine names it.
    pub fn of_engine(&self) -> weir_engine::IoMethod {
        match self.method {
            IoMethod::IoUring => weir_engine::IoMethod::Uring,
            IoMethod::Threads => weir_engine::IoMethod::Threads,
        }
    }
}
