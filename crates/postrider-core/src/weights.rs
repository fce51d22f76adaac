//! How the tenants of a queue share what is claimed from it.

use crate::{Invalid, TenantId};
use std::{collections::HashMap, sync::Arc};

/// The greatest weight that a tenant can have.
const MOST_WEIGHT: u32 = 10_000;

/// The shares of tenants in a queue whose tenants take turns. A tenant that is not named has a weight of 1, and so have
/// messages without a tenant, which are one more tenant. Cheap to clone.
///
/// Weights belong to whoever claims and not to the queue's policy: they say how a worker spends what it can do. So they need no
/// table, and may differ from one worker to the next.
#[derive(Debug, Clone, Default)]
pub struct TenantWeights(Arc<HashMap<TenantId, u32>>);

impl TenantWeights {
    /// Gives a tenant a share: one of weight 3 gets three messages where others get one, while it has them.
    #[must_use]
    pub fn with(mut self, tenant: TenantId, weight: u32) -> Self {
        Arc::make_mut(&mut self.0).insert(tenant, weight);
        self
    }

    /// The weight of a tenant. What has no tenant has an empty name here.
    pub fn of(&self, tenant: &str) -> u32 {
        self.0.get(tenant).copied().unwrap_or(1).clamp(1, MOST_WEIGHT)
    }

    /// Whether each tenant gets a share at all.
    ///
    /// # Errors
    /// Names the tenant whose weight is 0, or too large to be told from others.
    pub fn check(&self) -> Result<(), Invalid> {
        let bad = self.0.iter().find(|(_, weight)| !(1..=MOST_WEIGHT).contains(*weight));
        bad.map_or(Ok(()), |(tenant, weight)| {
            let rule = format!("is {weight} for tenant {tenant}; give 1 to {MOST_WEIGHT}");
            Err(Invalid::rule("tenant_weight", rule))
        })
    }
}
