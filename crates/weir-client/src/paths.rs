//! Paths of objects in the API.

/// The tenant and the name of an object. Without a tenant, a name such as `shop/db` names its tenant, as the name
/// of an NBD export does.
pub fn tenant_and_name<'a>(tenant: Option<&'a str>, name: &'a str) -> (Option<&'a str>, &'a str) {
    match name.split_once('/').filter(|_| tenant.is_none()) {
        Some((tenant, name)) => (Some(tenant), name),
        None => (tenant, name),
    }
}

/// The tenant and the name of an object that may be unnamed, as [`tenant_and_name`] has them.
pub fn tenant_and_any_name<'a>(
    tenant: Option<&'a str>,
    name: Option<&'a str>,
) -> (Option<&'a str>, Option<&'a str>) {
    let both = name.map(|name| tenant_and_name(tenant, name));
    both.map_or((tenant, None), |(tenant, name)| (tenant, Some(name)))
}

/// Path of an object of a tenant: `of_tenant(None, "volumes", "db")`. Without a name it is the path of the
/// collection. Without a tenant, the name may have it as in [`tenant_and_name`]; otherwise the default tenant is
/// meant.
pub fn of_tenant(tenant: Option<&str>, collection: &str, name: Option<&str>) -> String {
    let (tenant, name) = tenant_and_any_name(tenant, name);
    let tenant = segment(tenant.unwrap_or(weir_types::name::DEFAULT_TENANT));
    let name = name.map(|name| format!("/{}", segment(name))).unwrap_or_default();
    format!("/v1/tenants/{tenant}/{collection}{name}")
}

/// Escapes a name as one segment of a path. Characters that no name may have are escaped, so that the daemon
/// can report them.
///
/// A segment of one or two dots means another place even if the dots are escaped (WHATWG URL, section 4.1), so they
/// are escaped twice. The daemon refuses that name, too.
pub fn segment(name: &str) -> String {
    if matches!(name, "." | "..") {
        return name.replace('.', "%252E");
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let escape =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_an_export_names_the_tenant() {
        let path = |tenant, name| of_tenant(tenant, "volumes", Some(name));
        assert_eq!(path(None, "db"), "/v1/tenants/default/volumes/db");
        assert_eq!(path(None, "shop/db"), "/v1/tenants/shop/volumes/db");
        assert_eq!(
            path(Some("other"), "shop/db"),
            "/v1/tenants/other/volumes/shop%2Fdb",
            "no volume is named so"
        );
        assert_eq!(path(None, "../db"), "/v1/tenants/%252E%252E/volumes/db", "it leads to no other place");
    }
}
