//! Messages of the registration with the kubelet.

/// `PluginInfo`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PluginInfo {
    /// Kind of the plugin.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// Name of the driver.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Where the driver serves.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// Versions of the interface that it serves.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// `RegistrationStatus`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatus {
    /// Whether the kubelet took the driver.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Why not.
    #[prost(string, tag = "2")]
    pub error: String,
}
