//! What is to be carried out of one database. Plans that are equal need not be started anew.

use super::{Config, DatabaseSection, DestinationSection, RouteSection};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) source: String,
    pub(crate) database: DatabaseSection,
    /// Those that its routes go to.
    pub(crate) destinations: BTreeMap<String, DestinationSection>,
    pub(crate) routes: Vec<RouteSection>,
}

impl Config {
    /// One for each database that has routes.
    pub(crate) fn plans(&self) -> BTreeMap<String, Plan> {
        let plan = |(name, database): (&String, &DatabaseSection)| {
            let routes: Vec<_> =
                self.routes.iter().filter(|route| *route.database == *name).cloned().collect();
            let named = routes.iter().flat_map(|route| &route.to).map(|to| &to.destination.value);
            let destinations =
                named.filter_map(|name| Some((name.clone(), self.destinations.get(name)?.clone()))).collect();
            let database = database.clone();
            (!routes.is_empty()).then(|| {
                (name.clone(), Plan { source: self.source.value.clone(), database, destinations, routes })
            })
        };
        self.databases.iter().filter_map(plan).collect()
    }
}
