//! The connection: whether it is encrypted, and whether it verifies the server.

use super::super::{
    PostgresStore,
    connect_options::{EXPOSURE_REMEDY, exposure},
    connections::ConnectionMode,
};
use postrider_core::{Error, Finding};
use sqlx::postgres::PgSslMode;

const FACTS: &str = "select s.ssl from pg_stat_ssl s where s.pid = pg_backend_pid()";

pub(super) async fn findings(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    let connect = &store.inner.connect;
    let Some(danger) = exposure(connect) else { return Ok(Vec::new()) };
    let is_encrypted = match store.inner.mode {
        ConnectionMode::Direct => store.fact::<(bool,)>(store.inner.names.sql(&sql!(FACTS)).query()).await?.0,
        // The server knows its connection to the pooler only.
        ConnectionMode::Pooled => {
            matches!(connect.get_ssl_mode(), PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull)
        }
    };
    Ok(vec![assess(connect.get_host(), danger, is_encrypted)])
}

fn assess(host: &str, danger: &str, is_encrypted: bool) -> Finding {
    let finding = match is_encrypted {
        true => Finding::warning("unverified_server", "connection").because(format!(
            "the connection to {host} is encrypted, but the server is not verified: {danger}"
        )),
        false => Finding::warning("unencrypted", "connection")
            .because(format!("the connection to {host} is not encrypted: {danger}")),
    };
    finding.fixed_by(EXPOSURE_REMEDY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::postgres::PgConnectOptions;

    #[test]
    fn connection_over_a_network_without_verification_has_a_finding() {
        let options = |url: &str| url.parse::<PgConnectOptions>().unwrap();
        let danger = exposure(&options("postgres://db.example/shop")).unwrap();
        let finding = assess("db.example", danger, false);
        assert_eq!(finding.code, "unencrypted");
        assert!(finding.reason.starts_with("the connection to db.example is not encrypted"), "{finding:?}");
        assert!(finding.fix.contains("sslmode=verify-full"), "{finding:?}");
        let danger = exposure(&options("postgres://db.example/shop?sslmode=require")).unwrap();
        assert_eq!(assess("db.example", danger, true).code, "unverified_server");
    }
}
