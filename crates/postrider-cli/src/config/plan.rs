//! The plan of each component of the daemon. A component whose plan has not changed is not restarted.

use super::{Config, ConsumerSection, DatabaseSection, EndpointSection, FollowUpSection, RouteSection};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plan {
    Relay(RelayPlan),
    Consumer(Box<ConsumerPlan>),
    FollowUps(FollowUpPlan),
}

/// The routes of one database.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RelayPlan {
    pub(crate) source: String,
    pub(crate) database: DatabaseSection,
    /// The destinations of its routes.
    pub(crate) destinations: BTreeMap<String, EndpointSection>,
    pub(crate) routes: Vec<RouteSection>,
}

/// A consumer, and the database it stages into.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConsumerPlan {
    pub(crate) database: DatabaseSection,
    pub(crate) section: ConsumerSection,
}

/// The resolvers of one follow-up queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FollowUpPlan {
    pub(crate) source: String,
    pub(crate) database: DatabaseSection,
    pub(crate) queue: String,
    pub(crate) resolvers: Vec<FollowUpSection>,
}

impl Config {
    /// One relay for each database that has routes, one component for each consumer, and one runner for each follow-up queue, by the
    /// names used in logs and in `/readyz`.
    pub(crate) fn plans(&self) -> BTreeMap<String, Plan> {
        let mut plans = BTreeMap::new();
        for (name, database) in &self.databases {
            if let Some(relay) = self.relay(name, database) {
                plans.insert(name.clone(), Plan::Relay(relay));
            }
        }
        for section in &self.consumers {
            if let Some(database) = self.databases.get(&section.database.value) {
                let plan = ConsumerPlan { database: database.clone(), section: section.clone() };
                let name = format!("consumer {} of {}", section.name.value, section.database.value);
                plans.insert(name, Plan::Consumer(Box::new(plan)));
            }
        }
        for section in &self.follow_ups {
            let Some(database) = self.databases.get(&section.database.value) else { continue };
            let queue = section.queue.value.clone();
            let name = format!("{queue} of {}", section.database.value);
            let plan = plans.entry(name).or_insert_with(|| {
                let (source, database) = (self.source.clone(), database.clone());
                Plan::FollowUps(FollowUpPlan { source, database, queue, resolvers: Vec::new() })
            });
            if let Plan::FollowUps(plan) = plan {
                plan.resolvers.push(section.clone());
            }
        }
        plans
    }

    fn relay(&self, name: &str, database: &DatabaseSection) -> Option<RelayPlan> {
        let routes: Vec<_> = self.routes.iter().filter(|route| *route.database == *name).cloned().collect();
        let named = routes.iter().flat_map(|route| &route.to).map(|to| &to.destination.value);
        let destinations =
            named.filter_map(|name| Some((name.clone(), self.destinations.get(name)?.clone()))).collect();
        let (source, database) = (self.source.clone(), database.clone());
        (!routes.is_empty()).then_some(RelayPlan { source, database, destinations, routes })
    }
}
