//! Weights of tenants in claims from a fair queue.

use crate::{Invalid, TenantId};
use std::{collections::HashMap, sync::Arc};

/// The largest weight of a tenant.
const MOST_WEIGHT: u32 = 10_000;

/// The weights of tenants in a queue that is fair to tenants. The default weight is 1, also for messages without a tenant, which count
/// as one more tenant. Cheap to clone.
///
/// Weights belong to the claiming worker and not to the queue's policy: they divide the capacity of that worker. So they need no table
/// and may differ between workers.
#[derive(Debug, Clone, Default)]
pub struct TenantWeights(Arc<HashMap<TenantId, u32>>);

impl TenantWeights {
    /// Sets a tenant's weight: with weight 3 it gets three messages where others get one, while it has due messages.
    #[must_use]
    pub fn with(mut self, tenant: TenantId, weight: u32) -> Self {
        Arc::make_mut(&mut self.0).insert(tenant, weight);
        self
    }

    /// The weight of a tenant; messages without a tenant have the empty name.
    pub fn of(&self, tenant: &str) -> u32 {
        self.0.get(tenant).copied().unwrap_or(1).clamp(1, MOST_WEIGHT)
    }

    /// Checks the weights.
    ///
    /// # Errors
    /// Names the tenant whose weight is 0 or too large.
    pub fn check(&self) -> Result<(), Invalid> {
        let bad = self.0.iter().find(|(_, weight)| !(1..=MOST_WEIGHT).contains(*weight));
        bad.map_or(Ok(()), |(tenant, weight)| {
            let rule = format!("is {weight} for tenant {tenant}; give 1 to {MOST_WEIGHT}");
            Err(Invalid::rule("tenant_weight", rule))
        })
    }
}
