//! Reviews of users and rights: `SelfSubjectAccessReview` and its relatives, and `TokenReview`.
//! Reviews are not stored.
//!
//! This API has no authentication: every client is anonymous and has every right, and no token
//! belongs to a user.

use serde_json::{Value, json};

use super::request::Target;

/// A resource that can only be created and gets its answer at once.
#[derive(Debug)]
pub(crate) struct Review {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
}

/// The version of all reviews.
pub(crate) const VERSION: &str = "v1";

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// The reviews, in the order of discovery.
pub(crate) const REVIEWS: [Review; 5] = [
    Review { group: AUTHENTICATION, kind: "SelfSubjectReview" },
    Review { group: AUTHENTICATION, kind: "TokenReview" },
    Review { group: AUTHORIZATION, kind: "SelfSubjectAccessReview" },
    Review { group: AUTHORIZATION, kind: "SelfSubjectRulesReview" },
    Review { group: AUTHORIZATION, kind: "SubjectAccessReview" },
];

/// The review at a path.
pub(crate) fn at(target: &Target) -> Option<&'static Review> {
    let here = |review: &&Review| review.group == target.group && review.plural() == target.resource;
    REVIEWS.iter().find(here).filter(|_| target.version == VERSION)
}

impl Review {
    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    pub(crate) fn plural(&self) -> String {
        format!("{}s", self.singular())
    }

    /// The request with the answer in its status.
    pub(crate) fn answer(&self, question: &Value) -> Value {
        let status = match self.kind {
            "TokenReview" => json!({"user": {}, "error": "this API has no tokens"}),
            "SelfSubjectAccessReview" | "SubjectAccessReview" => {
                json!({"allowed": true, "reason": "this API grants every right to every client"})
            }
            "SelfSubjectRulesReview" => json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            }),
            _ => json!({"userInfo": {"username": "system:anonymous", "groups": ["system:unauthenticated"]}}),
        };
        let mut answer = json!({
            "kind": self.kind, "apiVersion": format!("{}/{VERSION}", self.group), "metadata": {}, "status": status,
        });
        if let Some(spec) = question.get("spec") {
            super::object::set(&mut answer, "/spec", spec.clone());
        }
        answer
    }
}
