//! The name of a directory.

use std::path::Path;

/// Returns the name of a directory for logs and metrics: its last part, or all of it if that is no
/// name, such as `/` and `..`.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// assert_eq!(keylane_disk::name_of(Path::new("/var/lib/orders/")), "orders");
/// assert_eq!(keylane_disk::name_of(Path::new("..")), "..");
/// ```
pub fn name_of(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or(directory.as_os_str());
    name.to_string_lossy().into_owned()
}
