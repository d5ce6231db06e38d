//! The database's URL.

use std::net::IpAddr;

use rollhook_core::{Error, Result};
use sqlx::{
    ConnectOptions,
    postgres::{PgConnectOptions, PgSslMode},
};

/// The parameters that may stand after the `?`; sqlx passes over others, `sslmod=require` too, with the value in the
/// log.
const PARAMETERS: &str = "sslmode, ssl-mode, sslrootcert, ssl-root-cert, ssl-ca, sslcert, ssl-cert, sslkey, ssl-key, \
                          host, hostaddr, port, dbname, user, password, application_name";

/// Returns how to connect. Nothing is set that a pooler in transaction mode would refuse: no `options`, no
/// `extra_float_digits`.
///
/// # Errors
/// `Invalid`, without the URL, which may hold a password.
pub(crate) fn parse(url: &str) -> Result<PgConnectOptions> {
    check(url).map_err(Error::invalid)?;
    let options: PgConnectOptions = url
        .parse()
        .map_err(|error: sqlx::Error| Error::invalid(format!("the database's URL cannot be used: {error}")))?;
    let named = options.get_application_name().is_some();
    let options = if named { options } else { options.application_name("rollhook") };
    Ok(options.extra_float_digits(None).statement_cache_capacity(0).disable_statement_logging())
}

/// Refuses ambiguous URLs, so that a part of a password is never shown as a host or a database.
fn check(url: &str) -> Result<(), String> {
    const FORM: &str =
        "the database's URL must look like postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full";
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://")).ok_or(FORM)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.matches('@').count() > 1 || rest[authority.len()..].contains(['@', '#']) {
        return Err(format!(
            "{FORM}, with the special characters of its parts written as %40 for @, %2F for /, and so on"
        ));
    }
    let parameters = rest.split_once('?').map_or("", |(_, parameters)| parameters);
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let name = parameter.split('=').next().unwrap_or_default();
        if !PARAMETERS.split(", ").any(|known| known == name) {
            return Err(format!("the database's URL has an unknown parameter; known are: {PARAMETERS}"));
        }
    }
    Ok(())
}

/// Returns whether passwords and history may cross a network in the clear. `prefer`, the default, encrypts only if the
/// server offers it, or whoever answers in its place.
pub(crate) fn may_be_plain(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let is_path = options.get_socket().is_some() || host.starts_with('/');
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let is_optional = matches!(options.get_ssl_mode(), PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer);
    is_optional && !is_path && !is_loopback
}

/// Returns the place of the database, for people.
pub(crate) fn place(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    match options.get_socket() {
        Some(socket) => format!("PostgreSQL database {database} in {}", socket.display()),
        None => format!("PostgreSQL database {database} at {}:{}", options.get_host(), options.get_port()),
    }
}

#[cfg(test)]
mod tests {
    use super::{may_be_plain, parse, place};

    #[test]
    fn network_without_required_encryption_may_be_plain() {
        for (url, plain) in [
            ("postgres://u@db.example/r", true),
            ("postgres://u@10.0.0.7/r?sslmode=prefer", true),
            ("postgres://u@db.example/r?sslmode=allow", true),
            ("postgres://u@[2001:db8::1]/r?sslmode=disable", true),
            ("postgres://u@db.example/r?sslmode=require", false),
            ("postgres://u@db.example/r?sslmode=verify-ca", false),
            ("postgres://u@db.example/r?sslmode=verify-full", false),
            ("postgres://u@localhost/r", false),
            ("postgres://u@127.0.0.1:6432/r?sslmode=disable", false),
            ("postgres://u@[::1]/r", false),
            ("postgres:///r?host=/run/postgresql&user=u", false),
        ] {
            assert_eq!(may_be_plain(&parse(url).unwrap()), plain, "{url}");
        }
    }

    #[test]
    fn sound_url_names_the_place() {
        let options = parse("postgres://user:hunter2@db.example:6432/shop?sslmode=require").unwrap();
        assert_eq!(place(&options), "PostgreSQL database shop at db.example:6432");
        assert_eq!(options.get_application_name(), Some("rollhook"));
        assert_eq!(format!("{:?}", options.get_ssl_mode()), "Require");
        assert_eq!(place(&parse("postgresql://u@%2Frun%2Fpg/shop").unwrap()), "PostgreSQL database shop in /run/pg");
        assert!(parse("postgres:///shop?host=/run/pg&user=u&password=hunter2").is_ok());
    }

    #[test]
    fn errors_do_not_show_the_password() {
        for url in [
            "hunter2",
            "mysql://u:hunter2@db/r",
            "postgres://u:hunter2@db:port/r",
            "postgres://u:hun/ter2@db/r",
            "postgres://u:1#hunter2@db/r",
            "postgres://u:1?hunter2@db/r",
            "postgres://u:p@hunter2@db/r",
            "postgres://u:hunter2@db/r?sslmode=perhaps",
            "postgres://u:hunter2@db/r?sslmod=require",
            "postgres://db/r?pasword=hunter2",
            "postgres://u:hunter2@db/r?options=-csearch_path%3Dx",
        ] {
            let error = parse(url).unwrap_err().chain();
            assert!(error.starts_with("invalid: the database's URL"), "{error}");
            for part in ["hunter2", "ter2", "hun/"] {
                assert!(!error.contains(part), "{error}");
            }
        }
    }
}
