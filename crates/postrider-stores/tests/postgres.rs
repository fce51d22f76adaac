//! The PostgreSQL store passes the whole store suite.

#[path = "support/postgres.rs"]
mod support;

postrider_testkit::store_suite!(support::PostgresFixture::new);
