//! Conversion of kinds of errors and of alarms.

use super::FromControl;

macro_rules! alike {
    ($theirs:path, $ours:path, $($name:ident),+) => {
        impl FromControl<$theirs> for $ours {
            fn from_control(value: $theirs) -> $ours {
                use $theirs as Theirs;
                use $ours as Ours;
                match value { $(Theirs::$name => Ours::$name),+ }
            }
        }
    };
}

alike!(
    weir_control::ErrorKind,
    weir_api_types::ErrorCode,
    Invalid,
    NotFound,
    Conflict,
    VersionMismatch,
    Refused,
    Full,
    Internal
);
alike!(weir_control::alarm_list::Severity, weir_api_types::Severity, Critical, Warning);
alike!(
    weir_control::alarms::AlarmSource,
    weir_api_types::AlarmCode,
    Control,
    Catalogue,
    Drive,
    LostWrites,
    ExtentCheck,
    DataPlane,
    Ledger,
    Class,
    Space,
    Measurement,
    Replicas,
    CoalescedFlushes,
    Scrub,
    Journal
);
