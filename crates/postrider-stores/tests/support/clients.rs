//! Clients that stage through plain SQL: Python with the system's SQLite, and the SQLite that is compiled in here.

#![allow(dead_code, reason = "each test that shares this file takes what it needs")]

use crate::polyglot::run;
use serde_json::Value;
use sqlx::{
    AssertSqlSafe, ConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};
use std::{fs, path::Path, process::Command, time::Duration};

/// A client of the database file, without Postrider.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Client {
    Python,
    BuiltIn,
}

pub(crate) const CLIENTS: [Client; 2] = [Client::Python, Client::BuiltIn];

/// A statement with its parameters: null, numbers and texts.
pub(crate) type Asked = (String, Vec<Value>);

pub(crate) fn asked(sql: impl Into<String>) -> Asked {
    (sql.into(), Vec::new())
}

const SCRIPT: &str = r#"
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
connection.execute("pragma synchronous = off")
answers = []
for sql, params in json.load(open(sys.argv[2])):
    try:
        answers.append({"rows": connection.execute(sql, params).fetchall()})
    except sqlite3.Error as error:
        answers.append({"refused": str(error)})
print(json.dumps(answers))
"#;

impl Client {
    /// Runs statements on one connection, and returns the result of each: success, or the error text.
    pub(crate) async fn all(self, path: &Path, statements: &[Asked]) -> Vec<Result<(), String>> {
        match self {
            Self::Python => {
                let script = path.with_extension("asked.json");
                fs::write(&script, serde_json::to_string(statements).unwrap()).unwrap();
                let printed = run(Command::new("python3").args(["-c", SCRIPT]).arg(path).arg(script));
                let answers: Vec<Value> = serde_json::from_str(&printed).unwrap();
                let refused = |answer: &Value| answer["refused"].as_str().map(str::to_owned);
                answers.iter().map(|answer| refused(answer).map_or(Ok(()), Err)).collect()
            }
            Self::BuiltIn => {
                let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
                let options =
                    options.busy_timeout(Duration::from_secs(30)).synchronous(SqliteSynchronous::Off);
                let mut connection = options.connect().await.unwrap();
                let mut answers = Vec::new();
                for (sql, params) in statements {
                    let query = params.iter().fold(
                        sqlx::query(AssertSqlSafe(sql.clone())),
                        |query, param| match param {
                            Value::String(text) => query.bind(text),
                            Value::Number(number) if number.is_i64() => query.bind(number.as_i64()),
                            Value::Number(number) => query.bind(number.as_f64()),
                            _ => query.bind(None::<i64>),
                        },
                    );
                    let done = query.execute(&mut connection).await;
                    answers.push(done.map(|_| ()).map_err(|error| match error.as_database_error() {
                        Some(error) => error.message().to_owned(),
                        None => error.to_string(),
                    }));
                }
                answers
            }
        }
    }

    /// Runs statements, none of which may be refused.
    pub(crate) async fn run(self, path: &Path, statements: &[&str]) {
        let statements: Vec<_> = statements.iter().map(|sql| asked(*sql)).collect();
        for (done, (sql, _)) in self.all(path, &statements).await.into_iter().zip(&statements) {
            done.unwrap_or_else(|refused| panic!("{self:?}: {sql}: {refused}"));
        }
    }
}
