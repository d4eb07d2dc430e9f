//! What an error of AWS means. The only place that knows the reactions to its codes.

use std::time::Duration;

use skysail_guest_sdk::{
    Error, Result,
    http::Response,
    text::cut,
    xml::{self, reader::Reader},
};

/// Longest part of a message of AWS that is repeated, in bytes: the list of 500 machines that do
/// not exist is longer than what people read.
const SAID_BYTES_MAX: usize = 300;

/// A failed call: the code of AWS, for those who expect one, and the reaction for everybody else.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// Empty where AWS did not answer with an error document.
    pub(crate) code: String,
    pub(crate) error: Error,
}

impl Fault {
    /// Whether AWS answered with one of the codes.
    pub(crate) fn is(&self, codes: &[&str]) -> bool {
        codes.contains(&self.code.as_str())
    }

    /// The fault of a response to a call of this action, if it is one.
    pub(crate) fn of(response: &Response, action: &str) -> Option<Self> {
        let Response { status, body, .. } = response;
        let wait = response.retry_after();
        match Said::of(body, action, *status) {
            Said::Answer => None,
            Said::Fault { code, message } => {
                let text = response.message(&format!("{code}: {}", short(&message)));
                // Elastic Load Balancing has one code for several faults of a subnet.
                let is_full = code == "InvalidSubnet" && message.contains("Not enough IP space");
                let error = meaning(if is_full { FULL_SUBNET } else { &code }, wait, *status, text);
                Some(Self { error, code })
            }
            Said::Nothing => {
                let message = response.message(&short(&String::from_utf8_lossy(body)));
                Some(Self { code: String::new(), error: of_gateway(*status, wait, message) })
            }
        }
    }
}

/// What AWS says in the body of a response.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Answer,
    Fault {
        code: String,
        message: String,
    },
    /// The body is not from AWS.
    Nothing,
}

impl Said {
    fn of(body: &[u8], action: &str, status: u16) -> Self {
        let failed = status >= 300;
        // Only the root is read: a list of machines has megabytes, and its reader reads it once.
        let root = Reader::new(body).and_then(|mut reader| reader.child()).ok().flatten();
        let root = root.map_or("", |root| root.name);
        if !failed && root.strip_suffix("Response") == Some(action) {
            return Self::Answer;
        }
        // <Response><Errors><Error> of EC2, <ErrorResponse><Error> of the others.
        let is_error = failed || matches!(root, "Response" | "ErrorResponse");
        let document = if is_error { xml::parse(body).ok() } else { None };
        let Some(document) = document else { return Self::Nothing };
        document.root().descendant("Error").map_or(Self::Nothing, |error| Self::Fault {
            code: error.text_of(&["Code"]).to_owned(),
            message: error.text_of(&["Message"]).to_owned(),
        })
    }
}

/// A proxy or a gateway answered in place of AWS, some with status 200: nobody knows whether AWS
/// received the call.
fn of_gateway(status: u16, wait: Option<Duration>, said: String) -> Error {
    let message =
        format!("{said}; the answer is not that of AWS: correct the URL in [ServiceOverride], or the proxy before AWS");
    match (status, wait) {
        (429 | 503, Some(wait)) => Error::retry_after(wait, message),
        (429, None) => Error::retry_after(Duration::ZERO, message),
        (401 | 403, _) => Error::Denied(message),
        (200..=299 | 408 | 500..=599, _) => Error::Unavailable(message),
        _ => Error::Internal(message),
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.error
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { code: String::new(), error }
    }
}

/// Codes that are an answer to the caller.
pub(crate) trait Expected<T> {
    /// None instead of a fault with one of these codes.
    fn unless(self, codes: &[&str]) -> Result<Option<T>>;
}

impl<T> Expected<T> for Result<T, Fault> {
    fn unless(self, codes: &[&str]) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(fault) if fault.is(codes) => Ok(None),
            Err(fault) => Err(fault.error),
        }
    }
}

const DENIED: [&str; 17] = [
    "AuthFailure",
    "UnauthorizedOperation",
    "AccessDenied",
    "AccessDeniedException",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "NotAuthorized",
    "OptInRequired",
    "Blocked",
    "PendingVerification",
    "MissingAuthenticationToken",
    "IncompleteSignature",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
];

const THROTTLED: [&str; 8] = [
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "EC2ThrottledException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "TooManyRequestsException",
    "PriorRequestNotComplete",
];

/// Another client, or an earlier call of this one, is at work on the resource.
const BUSY: [&str; 9] = [
    "DependencyViolation",
    "ResourceInUse",
    "IncorrectState",
    "IncorrectInstanceState",
    "InvalidGroup.InUse",
    "InvalidGroup.Duplicate",
    "InvalidPermission.Duplicate",
    "RouteAlreadyExists",
    "OperationNotPermittedException",
];

/// The machine of a node does not run, or has just been terminated.
pub(crate) const NOT_NOW: [&str; 3] = ["InvalidTarget", "InvalidInstance", "InvalidEndPoint"];

/// The user names these resources in annotations.
const NAMED_BY_USERS: [&str; 8] = [
    "CertificateNotFound",
    "AllocationIdNotFound",
    "InvalidAllocationID.NotFound",
    "InvalidSubnetID.NotFound",
    "SubnetNotFound",
    "InvalidSecurityGroup",
    "SSLPolicyNotFound",
    "PolicyTypeNotFound",
];

/// A subnet without free addresses.
const FULL_SUBNET: &str = "InsufficientFreeAddressesInSubnet";

/// What the user can do about a code; empty where AWS's own words or a later call help.
fn remedy(code: &str, error: &Error) -> &'static str {
    match (code, error) {
        ("ExpiredToken" | "ExpiredTokenException", _) => {
            "; write a new session token into the credential, or use a credential that renews itself, such as webIdentity"
        }
        ("RequestExpired", _) => "; set the clock of the machine on which the manager runs",
        ("UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" | "NotAuthorized", _) => {
            "; allow the action in the IAM policy of the account"
        }
        ("OptInRequired" | "Blocked" | "PendingVerification", _) => "; let AWS Support enable the account",
        (_, Error::Denied(_)) => "; correct the access key, `region` and `service` of the credential",
        (FULL_SUBNET, _) => {
            "; release addresses of the subnet, or name other subnets in the annotation \
             service.beta.kubernetes.io/aws-load-balancer-subnets"
        }
        (_, Error::Exhausted(_)) => "; delete what nobody needs, or ask AWS for a higher quota (Service Quotas)",
        ("InvalidInstanceID.Malformed" | "InvalidID", _) => "; correct spec.providerID of the node",
        (_, Error::Invalid(_)) => "; correct the annotations of the Service, or the cloud-config",
        // Whether the machine of a node exists is an answer.
        ("InvalidInstanceID.NotFound", _) => "",
        (_, Error::Unavailable(_)) if code.contains("NotFound") => {
            "; wait if the object is new, else correct the ID in the cloud-config or in an annotation"
        }
        _ => "",
    }
}

fn meaning(code: &str, wait: Option<Duration>, status: u16, message: String) -> Error {
    let mut error = reaction(code, wait, status, message);
    let remedy = remedy(code, &error);
    if !remedy.is_empty() {
        let text = format!("{}{remedy}", error.message());
        error = error.with_message(text);
    }
    error
}

/// The reaction to a code. No code is `not-found`: the contract's `not-found` is about the machine
/// or the load balancer that was asked for, and only the caller knows whether this is it.
fn reaction(code: &str, wait: Option<Duration>, status: u16, message: String) -> Error {
    let has = |part: &str| code.contains(part);
    if THROTTLED.contains(&code) {
        return Error::retry_after(wait.unwrap_or_default(), message);
    }
    if DENIED.contains(&code) {
        return Error::Denied(message);
    }
    if has("LimitExceeded") || has("QuotaExceeded") || code.starts_with("TooMany") || code.starts_with("Insufficient") {
        return Error::Exhausted(message);
    }
    if BUSY.contains(&code) {
        return Error::retry_after(wait.unwrap_or_default(), message);
    }
    if NAMED_BY_USERS.contains(&code) {
        return Error::Invalid(message);
    }
    // AWS shows a new resource to other calls after some seconds, and a machine that stopped is no
    // valid target until it runs.
    let not_shown_yet = has("NotFound") || code.starts_with("Duplicate") || NOT_NOW.contains(&code);
    let broken = status >= 500 || has("Internal") || has("Unavailable") || code == "RequestTimeout";
    if not_shown_yet || broken {
        return Error::Unavailable(message);
    }
    if code.is_empty() { Error::Internal(message) } else { Error::Invalid(message) }
}

/// What AWS said, without the full stop, as part of a message.
fn short(said: &str) -> String {
    cut(said.trim().trim_end_matches('.'), SAID_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skysail_guest_sdk::{Error, Retry};

    use super::{Said, meaning, of_gateway, short};

    fn reaction(code: &str) -> Error {
        super::reaction(code, None, 400, String::new())
    }

    #[test]
    fn each_code_has_one_reaction() {
        for code in ["AuthFailure", "UnauthorizedOperation", "AccessDenied", "SignatureDoesNotMatch"] {
            assert!(matches!(reaction(code), Error::Denied(_)), "{code}");
        }
        for code in ["RulesPerSecurityGroupLimitExceeded", "TooManyLoadBalancers", "InsufficientFreeAddressesInSubnet"]
        {
            assert!(matches!(reaction(code), Error::Exhausted(_)), "{code}");
        }
        for code in ["Throttling", "RequestLimitExceeded", "DependencyViolation", "ResourceInUse"] {
            assert!(matches!(reaction(code), Error::RetryAfter(_)), "{code}");
        }
        for code in ["InternalError", "ServiceUnavailable", "InvalidGroup.NotFound", "InvalidTarget"] {
            assert!(matches!(reaction(code), Error::Unavailable(_)), "{code}");
        }
        for code in ["ValidationError", "InvalidParameterValue", "CertificateNotFound", "InvalidConfigurationRequest"] {
            assert!(matches!(reaction(code), Error::Invalid(_)), "{code}");
        }
        assert!(matches!(meaning("", None, 400, String::new()), Error::Internal(_)));
    }

    /// Only the document of the action is an answer, also to a write, whose answer nobody reads.
    #[test]
    fn a_page_of_a_gateway_with_status_200_is_no_answer() {
        let said = |body: &str| Said::of(body.as_bytes(), "DeleteLoadBalancer", 200);
        assert_eq!(said("<DeleteLoadBalancerResponse/>"), Said::Answer);
        for body in
            ["", "{}", "<html><head/><body>Back soon</body></html>", "<html><br></html>", "<DeleteTagsResponse/>"]
        {
            assert_eq!(said(body), Said::Nothing, "{body}");
        }
        let fault = Said::Fault { code: "A".to_owned(), message: "b".to_owned() };
        assert_eq!(
            said("<Response><Errors><Error><Code>A</Code><Message>b</Message></Error></Errors></Response>"),
            fault
        );
        assert_eq!(Said::of(b"<DeleteLoadBalancerResponse/>", "DeleteLoadBalancer", 503), Said::Nothing);
        assert!(matches!(of_gateway(200, None, String::new()), Error::Unavailable(_)));
        assert!(matches!(of_gateway(404, None, String::new()), Error::Internal(_)));
    }

    /// `RequestLimitExceeded` looks like a quota and is a rate.
    #[test]
    fn the_wait_that_aws_asks_for_is_kept() {
        let error = meaning("RequestLimitExceeded", Some(Duration::from_secs(3)), 503, "busy".to_owned());
        assert_eq!(error, Error::RetryAfter(Retry { after_ms: 3_000, message: "busy".to_owned() }));
    }

    #[test]
    fn a_long_message_is_cut_between_two_characters() {
        assert_eq!(short(" short. "), "short");
        let long = "é".repeat(400);
        assert_eq!(short(&long).chars().count(), 151);
    }
}
