//! Routes to the pods of a machine.

use ipnet::IpNet;

use super::{State, checked_tags, checked_text, not_found, room};
use crate::cloud::{
    error::CloudError,
    model::{NewRoute, Route},
};

impl State {
    pub(in crate::cloud) fn create_route(&mut self, new: NewRoute) -> Result<Route, CloudError> {
        let NewRoute { name, destination_cidr, instance, tags } = new;
        checked_text("the name of a route", &name)?;
        checked_tags(&tags)?;
        room("routes", self.routes.len())?;
        let destination: IpNet = destination_cidr
            .parse()
            .map_err(|_| CloudError::Invalid(format!("{destination_cidr:?} is not a CIDR such as 10.244.3.0/24")))?;
        let destination_cidr = destination.trunc().to_string();
        if !self.instances.contains_key(&instance) {
            return Err(not_found("instance", &instance));
        }
        if let Some(other) = self.routes.values().find(|route| route.destination_cidr == destination_cidr) {
            return Err(CloudError::Conflict(format!(
                "route {} has the destination {destination_cidr} already",
                other.id
            )));
        }
        let route = Route { id: self.next_id("r"), name, destination_cidr, instance, blackhole: false, tags };
        self.tell("created", "route", (&route.id, &route.destination_cidr), &route.tags);
        self.routes.insert(route.id.clone(), route.clone());
        Ok(route)
    }

    pub(in crate::cloud) fn delete_route(&mut self, id: &str) -> Result<(), CloudError> {
        let route = self.routes.remove(id).ok_or_else(|| not_found("route", id))?;
        self.forget(id);
        self.tell("deleted", "route", (id, &route.destination_cidr), &route.tags);
        Ok(())
    }

    /// The present route; without its machine it is a blackhole.
    pub(in crate::cloud) fn with_blackhole(&self, route: Route) -> Route {
        Route { blackhole: !self.instances.contains_key(&route.instance), ..route }
    }
}
