//! Token reviews and access reviews, which a server sends to authenticate and authorize callers.

use serde_json::{Value, json};

use crate::env::Env;

pub(crate) async fn an_unknown_token_is_not_authenticated(env: &Env) {
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "of-no-account"}});
    let answer = env.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let status = &answer.body["status"];
    assert!(matches!(status["authenticated"], Value::Null | Value::Bool(false)), "{status}");
    assert!(status["error"].is_string() && status["user"]["username"].is_null(), "{status}");
}

pub(crate) async fn masters_may_read_any_path(env: &Env) {
    let spec = json!({
        "user": "joe", "groups": ["system:masters"], "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    });
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    let answer = env.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await;
    assert_eq!((answer.code, &answer.body["status"]["allowed"]), (201, &json!(true)), "{}", answer.body);
    assert_eq!(answer.body["spec"], spec);
}
