//! A call of an API in the form of Amazon's query protocol: an action and named parameters.

/// An API; each has a version of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Ec2,
    /// Classic Load Balancers.
    Elb,
    /// Network Load Balancers.
    ElbV2,
}

/// The parameters of a filter of EC2 have their number in the name.
const FILTER: &str = "Filter";

/// One call that is not sent yet.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) service: Service,
    action: &'static str,
    parameters: Vec<(String, String)>,
    filters: usize,
}

impl Call {
    /// A call of EC2.
    pub(crate) const fn ec2(action: &'static str) -> Self {
        Self::new(Service::Ec2, action)
    }

    /// A call of the API of Classic Load Balancers.
    pub(crate) const fn elb(action: &'static str) -> Self {
        Self::new(Service::Elb, action)
    }

    /// A call of the API of Network Load Balancers.
    pub(crate) const fn elb_v2(action: &'static str) -> Self {
        Self::new(Service::ElbV2, action)
    }

    const fn new(service: Service, action: &'static str) -> Self {
        Self { service, action, parameters: Vec::new(), filters: 0 }
    }

    /// The action's name.
    pub(crate) const fn action(&self) -> &'static str {
        self.action
    }

    /// The action and the object that it is about, for messages: the first parameter, or the first
    /// value of the first filter.
    pub(crate) fn tried(&self) -> String {
        let named = self.parameters.iter().find(|(name, _)| !name.starts_with(FILTER) || name.contains(".Value."));
        named.map_or_else(|| self.action.to_owned(), |(_, object)| format!("{} {object}", self.action))
    }

    /// Sets one parameter.
    pub(crate) fn set(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.parameters.push((name.into(), value.to_string()));
        self
    }

    /// Sets one parameter if there is a value.
    pub(crate) fn set_opt(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// Sets a list of values.
    pub(crate) fn list<T: ToString>(mut self, name: &str, values: impl IntoIterator<Item = T>) -> Self {
        for (n, value) in (1..).zip(values) {
            let member = self.member(name, n);
            self = self.set(member, value);
        }
        self
    }

    /// The name of one member of a list: EC2 has no word between the name and the number.
    pub(crate) fn member(&self, name: &str, n: usize) -> String {
        match self.service {
            Service::Ec2 => format!("{name}.{n}"),
            Service::Elb | Service::ElbV2 => format!("{name}.member.{n}"),
        }
    }

    /// Adds a filter: EC2 answers with the entries that have one of the values.
    pub(crate) fn filter<T: ToString>(mut self, name: &str, values: impl IntoIterator<Item = T>) -> Self {
        self.filters += 1;
        let filter = format!("{FILTER}.{}", self.filters);
        self.set(format!("{filter}.Name"), name).list(&format!("{filter}.Value"), values)
    }

    /// Sets a list of keys and values, such as tags.
    pub(crate) fn pairs<'a>(mut self, name: &str, tags: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        for (n, (key, value)) in (1..).zip(tags) {
            let tag = self.member(name, n);
            self = self.set(format!("{tag}.Key"), key).set(format!("{tag}.Value"), value);
        }
        self
    }

    /// Action, version and parameters.
    pub(crate) fn form(&self) -> impl Iterator<Item = (&str, &str)> {
        let version = match self.service {
            Service::Ec2 => "2016-11-15",
            Service::Elb => "2012-06-01",
            Service::ElbV2 => "2015-12-01",
        };
        let parameters = self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        [("Action", self.action), ("Version", version)].into_iter().chain(parameters)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Call;

    fn form(call: &Call) -> String {
        call.form().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    }

    #[test]
    fn a_call_is_named_by_its_action_and_its_first_object() {
        assert_eq!(Call::elb("DescribeLoadBalancers").tried(), "DescribeLoadBalancers");
        assert_eq!(Call::elb_v2("AddTags").list("ResourceArns", ["arn:1", "arn:2"]).tried(), "AddTags arn:1");
        let by_filter = Call::ec2("DescribeSubnets").filter("vpc-id", ["vpc-1"]).set("MaxResults", 5);
        assert_eq!(by_filter.tried(), "DescribeSubnets vpc-1");
    }

    #[test]
    fn lists_have_the_form_of_their_api() {
        let call = Call::ec2("DescribeInstances").filter("vpc-id", ["vpc-1"]).filter("instance-id", ["i-1", "i-2"]);
        assert_eq!(
            form(&call.set("MaxResults", 5).set_opt("NextToken", None::<&str>)),
            "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=vpc-id&Filter.1.Value.1=vpc-1\
             &Filter.2.Name=instance-id&Filter.2.Value.1=i-1&Filter.2.Value.2=i-2&MaxResults=5"
        );
        let tags = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let call = Call::elb_v2("AddTags").list("ResourceArns", ["arn:1"]).pairs("Tags", &tags);
        assert_eq!(
            form(&call),
            "Action=AddTags&Version=2015-12-01&ResourceArns.member.1=arn:1&Tags.member.1.Key=a&Tags.member.1.Value=b"
        );
        assert!(form(&Call::elb("DescribeTags")).ends_with("Version=2012-06-01"));
    }
}
