//! Addresses that name several servers.

use crate::error::SqlError;

/// What a server must be like, as clients of PostgreSQL write it.
const ATTRIBUTES: &str = "target_session_attrs=";

/// Returns one address for each server that an address names, with the same user, password and
/// database: `postgres://user:password@first:5432,second:5432/database`.
///
/// # Errors
///
/// [`SqlError`] if the servers are not to take writes.
pub(crate) fn servers(address: &str) -> Result<Vec<String>, SqlError> {
    let (address, parameters) = match address.split_once('?') {
        Some((address, parameters)) => (address, parameters.split('&').collect()),
        None => (address, Vec::new()),
    };
    let (attributes, others): (Vec<_>, Vec<_>) = parameters
        .into_iter()
        .partition(|one| one.starts_with(ATTRIBUTES));
    for attributes in attributes {
        match &attributes[ATTRIBUTES.len()..] {
            "any" | "primary" | "read-write" => {}
            _ => return Err(SqlError::attributes()),
        }
    }
    let parameters = match others.is_empty() {
        true => String::new(),
        false => format!("?{}", others.join("&")),
    };
    let authority = address.find("://").map_or(0, |at| at + 3);
    let end = address[authority..].find('/');
    let (authority, database) = address.split_at(end.map_or(address.len(), |end| authority + end));
    let hosts = authority.rfind(['@', '/']).map_or(0, |at| at + 1);
    let (user, hosts) = authority.split_at(hosts);
    let servers = hosts.split(',');
    Ok(servers
        .map(|host| format!("{user}{host}{database}{parameters}"))
        .collect())
}

/// The parameters that name files of certificates, as the two kinds of addresses spell them.
const FILES: [&str; 8] = [
    "sslrootcert",
    "ssl-root-cert",
    "sslca",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
];

/// Opens the files of certificates that an address names. For the client a file that is missing is
/// the same as a server that cannot be reached.
///
/// # Errors
///
/// [`SqlError`] with the parameter if a file cannot be opened.
pub(crate) fn check_files(address: &str) -> Result<(), SqlError> {
    let (_, parameters) = address.split_once('?').unwrap_or_default();
    for parameter in parameters.split('&') {
        let Some((name, value)) = parameter.split_once('=') else {
            continue;
        };
        // A value may be the certificate itself, and an escaped path is left to the client.
        let is_path = !value.contains('%') && !value.contains("-----BEGIN");
        if FILES.contains(&name) && is_path {
            let opened = std::fs::File::open(value);
            opened.map_err(|error| SqlError::unreadable_file(name, &error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_an_address() {
        let one = "postgres://user:pass,word@host:5432/database?sslmode=require";
        assert_eq!(servers(one).unwrap(), [one]);
        let both = "mysql://user:secret@one:1,[::1]:2/orders?charset=utf8mb4&ssl-mode=DISABLED";
        assert_eq!(
            servers(both).unwrap(),
            [
                "mysql://user:secret@one:1/orders?charset=utf8mb4&ssl-mode=DISABLED",
                "mysql://user:secret@[::1]:2/orders?charset=utf8mb4&ssl-mode=DISABLED",
            ]
        );
        assert_eq!(
            servers("postgres://one,two").unwrap(),
            ["postgres://one", "postgres://two"]
        );
        for odd in ["", "postgres", "postgres:", "postgres://", "?", "@"] {
            assert_eq!(servers(odd).unwrap().len(), 1, "{odd}");
        }
    }

    #[test]
    fn servers_take_writes() {
        for attributes in ["read-write", "primary", "any"] {
            let address = format!("postgres://one,two/x?a=b&target_session_attrs={attributes}");
            let expected = ["postgres://one/x?a=b", "postgres://two/x?a=b"];
            assert_eq!(servers(&address).unwrap(), expected);
        }
        let refused = servers("postgres://one,two/x?target_session_attrs=standby");
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("read-write"), "{refused}");
    }
}
