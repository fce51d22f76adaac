//! The faults, and their random choice.

use rand::{RngExt, rngs::StdRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// SIGKILL of a process, which is replaced.
    Sigkill,
    /// SIGSTOP of a process, and SIGCONT after its leases have expired.
    Sigstop,
    /// The database server crashes, and recovers.
    ServerCrash,
    /// The database server crashes, the standby takes over, and gets a standby of its own.
    Failover,
    /// The pooler is killed and restarted.
    PoolerRestart,
    /// The broker is killed and restarted with its data.
    BrokerKill,
}

impl Fault {
    const ALL: [Self; 6] = [
        Self::Sigkill,
        Self::Sigstop,
        Self::ServerCrash,
        Self::Failover,
        Self::PoolerRestart,
        Self::BrokerKill,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sigkill => "SIGKILL",
            Self::Sigstop => "SIGSTOP",
            Self::ServerCrash => "server crash",
            Self::Failover => "failover",
            Self::PoolerRestart => "pooler restart",
            Self::BrokerKill => "broker kill",
        }
    }

    /// Faults of servers stop everything for a second or more, so most faults are of processes.
    fn random(random: &mut StdRng) -> Self {
        match random.random_range(0..100) {
            0..72 => Self::Sigkill,
            72..85 => Self::Sigstop,
            85..89 => Self::ServerCrash,
            89..91 => Self::Failover,
            91..95 => Self::PoolerRestart,
            _ => Self::BrokerKill,
        }
    }
}

/// The next faults: first each once, then at random.
#[derive(Debug)]
pub(crate) struct FaultPlan {
    first: Vec<Fault>,
}

impl FaultPlan {
    pub(crate) fn new(random: &mut StdRng) -> Self {
        let mut first = Fault::ALL.to_vec();
        first.shuffle(random);
        Self { first }
    }

    pub(crate) fn next(&mut self, random: &mut StdRng) -> Fault {
        self.first.pop().unwrap_or_else(|| Fault::random(random))
    }
}
