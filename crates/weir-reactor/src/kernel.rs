//! The kernel of this host.

/// The two first numbers of its version.
pub fn kernel_version() -> (u32, u32) {
    version(&rustix::system::uname().release().to_string_lossy())
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_a_release() {
        assert_eq!(version("6.12.117+deb12-cloud-amd64"), (6, 12));
        assert_eq!((version("5.4"), version("6"), version("")), ((5, 4), (6, 0), (0, 0)));
    }
}
