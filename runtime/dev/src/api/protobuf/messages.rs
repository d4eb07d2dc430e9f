//! The known messages, with the field numbers of the `generated.proto` files of k8s.io/api.

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Bytes,
    Int,
    Bool,
    Time,
    IntOrString,
    Message(&'static [Field]),
    /// A map from text to text (false) or bytes (true).
    Map(bool),
    /// Fields that a client cannot set: status and managed fields.
    Ignored,
}

/// Number, name, kind, repeated.
pub(super) type Field = (u64, &'static str, Kind, bool);

static OWNER: &[Field] = &[
    (5, "apiVersion", Kind::Text, false),
    (1, "kind", Kind::Text, false),
    (3, "name", Kind::Text, false),
    (4, "uid", Kind::Text, false),
    (6, "controller", Kind::Bool, false),
    (7, "blockOwnerDeletion", Kind::Bool, false),
];
static META: &[Field] = &[
    (1, "name", Kind::Text, false),
    (2, "generateName", Kind::Text, false),
    (3, "namespace", Kind::Text, false),
    (5, "uid", Kind::Text, false),
    (6, "resourceVersion", Kind::Text, false),
    (7, "generation", Kind::Int, false),
    (8, "creationTimestamp", Kind::Time, false),
    (9, "deletionTimestamp", Kind::Time, false),
    (11, "labels", Kind::Map(false), false),
    (12, "annotations", Kind::Map(false), false),
    (13, "ownerReferences", Kind::Message(OWNER), true),
    (14, "finalizers", Kind::Text, true),
    (17, "managedFields", Kind::Ignored, false),
];
static CONFIG_MAP: &[Field] = &[
    (1, "metadata", Kind::Message(META), false),
    (2, "data", Kind::Map(false), false),
    (3, "binaryData", Kind::Map(true), false),
    (4, "immutable", Kind::Bool, false),
];
static SECRET: &[Field] = &[
    (1, "metadata", Kind::Message(META), false),
    (2, "data", Kind::Map(true), false),
    (3, "type", Kind::Text, false),
    (4, "stringData", Kind::Map(false), false),
    (5, "immutable", Kind::Bool, false),
];
static NAMESPACE: &[Field] = &[(1, "metadata", Kind::Message(META), false), (3, "status", Kind::Ignored, false)];
static SERVICE_ACCOUNT: &[Field] = &[(1, "metadata", Kind::Message(META), false)];
static PORT: &[Field] = &[
    (1, "name", Kind::Text, false),
    (2, "protocol", Kind::Text, false),
    (3, "port", Kind::Int, false),
    (4, "targetPort", Kind::IntOrString, false),
    (5, "nodePort", Kind::Int, false),
    (6, "appProtocol", Kind::Text, false),
];
static AFFINITY: &[Field] = &[(1, "clientIP", Kind::Message(CLIENT_IP), false)];
static CLIENT_IP: &[Field] = &[(1, "timeoutSeconds", Kind::Int, false)];
static SERVICE_SPEC: &[Field] = &[
    (1, "ports", Kind::Message(PORT), true),
    (2, "selector", Kind::Map(false), false),
    (3, "clusterIP", Kind::Text, false),
    (4, "type", Kind::Text, false),
    (5, "externalIPs", Kind::Text, true),
    (7, "sessionAffinity", Kind::Text, false),
    (8, "loadBalancerIP", Kind::Text, false),
    (9, "loadBalancerSourceRanges", Kind::Text, true),
    (10, "externalName", Kind::Text, false),
    (11, "externalTrafficPolicy", Kind::Text, false),
    (12, "healthCheckNodePort", Kind::Int, false),
    (13, "publishNotReadyAddresses", Kind::Bool, false),
    (14, "sessionAffinityConfig", Kind::Message(AFFINITY), false),
    (17, "ipFamilyPolicy", Kind::Text, false),
    (18, "clusterIPs", Kind::Text, true),
    (19, "ipFamilies", Kind::Text, true),
    (20, "allocateLoadBalancerNodePorts", Kind::Bool, false),
    (21, "loadBalancerClass", Kind::Text, false),
    (22, "internalTrafficPolicy", Kind::Text, false),
    (23, "trafficDistribution", Kind::Text, false),
];
static SERVICE: &[Field] = &[
    (1, "metadata", Kind::Message(META), false),
    (2, "spec", Kind::Message(SERVICE_SPEC), false),
    (3, "status", Kind::Ignored, false),
];
static SELECTOR: &[Field] = &[(1, "matchLabels", Kind::Map(false), false)];
static CONTAINER_PORT: &[Field] = &[
    (1, "name", Kind::Text, false),
    (3, "containerPort", Kind::Int, false),
    (4, "protocol", Kind::Text, false),
    (5, "hostIP", Kind::Text, false),
];
static CONTAINER: &[Field] = &[
    (1, "name", Kind::Text, false),
    (2, "image", Kind::Text, false),
    (3, "command", Kind::Text, true),
    (4, "args", Kind::Text, true),
    (5, "workingDir", Kind::Text, false),
    (6, "ports", Kind::Message(CONTAINER_PORT), true),
    (14, "imagePullPolicy", Kind::Text, false),
];
static POD_SPEC: &[Field] = &[
    (2, "containers", Kind::Message(CONTAINER), true),
    (3, "restartPolicy", Kind::Text, false),
    (4, "terminationGracePeriodSeconds", Kind::Int, false),
    (7, "nodeSelector", Kind::Map(false), false),
    (8, "serviceAccountName", Kind::Text, false),
];
static POD_TEMPLATE: &[Field] =
    &[(1, "metadata", Kind::Message(META), false), (2, "spec", Kind::Message(POD_SPEC), false)];
static ROLLING_UPDATE: &[Field] =
    &[(1, "maxUnavailable", Kind::IntOrString, false), (2, "maxSurge", Kind::IntOrString, false)];
static STRATEGY: &[Field] =
    &[(1, "type", Kind::Text, false), (2, "rollingUpdate", Kind::Message(ROLLING_UPDATE), false)];
static DEPLOYMENT_SPEC: &[Field] = &[
    (1, "replicas", Kind::Int, false),
    (2, "selector", Kind::Message(SELECTOR), false),
    (3, "template", Kind::Message(POD_TEMPLATE), false),
    (4, "strategy", Kind::Message(STRATEGY), false),
    (6, "revisionHistoryLimit", Kind::Int, false),
    (9, "progressDeadlineSeconds", Kind::Int, false),
];
static DEPLOYMENT: &[Field] = &[
    (1, "metadata", Kind::Message(META), false),
    (2, "spec", Kind::Message(DEPLOYMENT_SPEC), false),
    (3, "status", Kind::Ignored, false),
];
static RULE: &[Field] = &[
    (1, "verbs", Kind::Text, true),
    (2, "apiGroups", Kind::Text, true),
    (3, "resources", Kind::Text, true),
    (4, "resourceNames", Kind::Text, true),
    (5, "nonResourceURLs", Kind::Text, true),
];
static ROLE: &[Field] = &[(1, "metadata", Kind::Message(META), false), (2, "rules", Kind::Message(RULE), true)];
static SUBJECT: &[Field] = &[
    (1, "kind", Kind::Text, false),
    (2, "apiGroup", Kind::Text, false),
    (3, "name", Kind::Text, false),
    (4, "namespace", Kind::Text, false),
];
static ROLE_REF: &[Field] =
    &[(1, "apiGroup", Kind::Text, false), (2, "kind", Kind::Text, false), (3, "name", Kind::Text, false)];
static BINDING: &[Field] = &[
    (1, "metadata", Kind::Message(META), false),
    (2, "subjects", Kind::Message(SUBJECT), true),
    (3, "roleRef", Kind::Message(ROLE_REF), false),
];
static RESOURCE_ATTRIBUTES: &[Field] = &[
    (1, "namespace", Kind::Text, false),
    (2, "verb", Kind::Text, false),
    (3, "group", Kind::Text, false),
    (4, "version", Kind::Text, false),
    (5, "resource", Kind::Text, false),
    (6, "subresource", Kind::Text, false),
    (7, "name", Kind::Text, false),
];
static PATH_ATTRIBUTES: &[Field] = &[(1, "path", Kind::Text, false), (2, "verb", Kind::Text, false)];
static ACCESS: &[Field] = &[
    (1, "resourceAttributes", Kind::Message(RESOURCE_ATTRIBUTES), false),
    (2, "nonResourceAttributes", Kind::Message(PATH_ATTRIBUTES), false),
];
static ACCESS_REVIEW: &[Field] = &[
    (1, "metadata", Kind::Message(META), false),
    (2, "spec", Kind::Message(ACCESS), false),
    (3, "status", Kind::Ignored, false),
];
static RULES: &[Field] = &[(1, "namespace", Kind::Text, false)];
static RULES_REVIEW: &[Field] = &[
    (1, "metadata", Kind::Message(META), false),
    (2, "spec", Kind::Message(RULES), false),
    (3, "status", Kind::Ignored, false),
];
static SELF_REVIEW: &[Field] = &[(1, "metadata", Kind::Message(META), false), (2, "status", Kind::Ignored, false)];
static TYPE: &[Field] = &[(1, "apiVersion", Kind::Text, false), (2, "kind", Kind::Text, false)];
/// `runtime.Unknown`, the envelope of every object.
pub(super) static UNKNOWN: &[Field] = &[(1, "typeMeta", Kind::Message(TYPE), false), (2, "raw", Kind::Bytes, false)];

/// The fields of a kind; `None` for an unknown kind.
pub(super) fn fields_of(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    Some(match (api_version, kind) {
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "ServiceAccount") => SERVICE_ACCOUNT,
        ("v1", "Service") => SERVICE,
        ("apps/v1", "Deployment") => DEPLOYMENT,
        ("rbac.authorization.k8s.io/v1", "Role" | "ClusterRole") => ROLE,
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => BINDING,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => ACCESS_REVIEW,
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => RULES_REVIEW,
        ("authentication.k8s.io/v1", "SelfSubjectReview") => SELF_REVIEW,
        _ => return None,
    })
}
