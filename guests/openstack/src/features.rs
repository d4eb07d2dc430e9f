//! What the version and the driver of the load-balancer API can do.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use skysail_guest_sdk::{Error, Result};

/// A version of the load-balancer API: `v2.27` is (2, 27).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct Version(u16, u16);

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (major, minor) = text.trim_start_matches('v').split_once('.').ok_or(())?;
        Ok(Self(major.parse().map_err(|_| ())?, minor.parse().map_err(|_| ())?))
    }
}

/// The first version with tags, on which ownership rests: a cloud since Stein (2019) has it.
const TAGS: Version = Version(2, 5);

/// What may be asked of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// Listeners accept `allowed_cidrs`.
    pub(crate) allowed_cidrs: bool,
    pub(crate) flavors: bool,
    /// Listeners accept timeouts.
    pub(crate) timeouts: bool,
    pub(crate) availability_zones: bool,
    pub(crate) http_monitors: bool,
    pub(crate) http_monitors_on_udp: bool,
}

impl Features {
    /// The features of this version with this driver. The limits are those of the vendor's manager.
    ///
    /// # Errors
    ///
    /// `unsupported` for a version without tags.
    pub(crate) fn of(version: Version, driver: &str) -> Result<Self> {
        if version < TAGS {
            let Version(major, minor) = version;
            return Err(Error::Unsupported(format!(
                "the load-balancer API has version {major}.{minor}: this provider marks its load balancers with tags, \
                 which version 2.5 introduced; upgrade Octavia"
            )));
        }
        let full = driver != "ovn";
        Ok(Self {
            allowed_cidrs: full && version >= Version(2, 12),
            flavors: full && version >= Version(2, 6),
            timeouts: full,
            availability_zones: full && version >= Version(2, 14),
            http_monitors: full,
            http_monitors_on_udp: full && version >= Version(2, 16),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Features, Version};

    #[test]
    fn features_depend_on_version_and_driver() {
        let features = |version: &str, driver| Features::of(version.parse().unwrap(), driver);
        let all = features("v2.27", "amphora").unwrap();
        assert!(all.allowed_cidrs && all.flavors && all.availability_zones && all.http_monitors_on_udp && all.timeouts);
        let ovn = features("v2.27", "ovn").unwrap();
        assert!(!ovn.allowed_cidrs && !ovn.flavors && !ovn.http_monitors && !ovn.timeouts);
        let old = features("v2.11", "amphora").unwrap();
        assert!(old.flavors && !old.allowed_cidrs && !old.availability_zones);
        assert!(features("v2.4", "amphora").unwrap_err().message().contains("2.4"));
        assert!("v2.10".parse::<Version>().unwrap() > "v2.9".parse().unwrap());
        assert_eq!("current".parse::<Version>(), Err(()));
    }
}
