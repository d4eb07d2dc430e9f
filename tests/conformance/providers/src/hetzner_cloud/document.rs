//! Hetzner's OpenAPI document as the judge of each exchange.

use std::{collections::BTreeMap, sync::OnceLock};

use anyhow::{Context as _, Result, anyhow, ensure};
use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::project::Answer;

/// The operations of the document.
#[derive(Debug)]
pub(super) struct Document {
    operations: Vec<Operation>,
}

#[derive(Debug)]
struct Operation {
    method: String,
    path: String,
    /// Names of the parameters in the query.
    query: Vec<String>,
    /// None for an operation without a body.
    request: Option<Validator>,
    /// By status, such as `201` and `4xx`; none for a status without a body.
    responses: BTreeMap<String, Option<Validator>>,
}

impl Document {
    /// `data/hetzner-openapi.json`.
    ///
    /// # Errors
    /// The document cannot be read.
    pub(super) fn vendors() -> Result<&'static Self> {
        static DOCUMENT: OnceLock<Result<Document, String>> = OnceLock::new();
        let read = || Self::of(include_str!("../../data/hetzner-openapi.json")).map_err(|error| format!("{error:#}"));
        DOCUMENT.get_or_init(read).as_ref().map_err(|error| anyhow!("data/hetzner-openapi.json: {error}"))
    }

    fn of(text: &str) -> Result<Self> {
        let document: Value = serde_json::from_str(text)?;
        let components = document.get("components").context("no components")?;
        // A response may have fields that the document lacks, a request may not.
        let requests = json!({"components": schema(components, true)});
        let responses = json!({"components": schema(components, false)});
        let mut operations = Vec::new();
        for (path, operation) in object(document.get("paths")) {
            for (method, operation) in object(Some(operation)) {
                let parameters = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
                let query = parameters.filter(|parameter| parameter.get("in").is_some_and(|place| place == "query"));
                let name = |parameter: &Value| Some(parameter.get("name")?.as_str()?.to_owned());
                let mut by_status = BTreeMap::new();
                for (status, response) in object(operation.get("responses")) {
                    by_status.insert(status.clone(), validator(response, &responses)?);
                }
                operations.push(Operation {
                    method: method.to_uppercase(),
                    path: path.clone(),
                    query: query.filter_map(name).collect(),
                    request: operation.get("requestBody").map(|body| validator(body, &requests)).transpose()?.flatten(),
                    responses: by_status,
                });
            }
        }
        ensure!(!operations.is_empty(), "no operations");
        Ok(Self { operations })
    }

    /// Compares an exchange with the document; the path is without `/v1`.
    ///
    /// # Errors
    /// What the document does not allow.
    pub(super) fn compare(
        &self,
        method: &str,
        path: &str,
        query: &[(String, String)],
        body: &[u8],
        answer: &Answer,
    ) -> Result<(), String> {
        let wrong = |what: String| format!("{method} {path}: {what}");
        let found = self.operations.iter().find(|operation| operation.method == method && operation.is_at(path));
        let operation = found.ok_or_else(|| wrong("there is no such operation".to_owned()))?;
        if let Some((name, _)) = query.iter().find(|(name, _)| !operation.query.contains(name)) {
            return Err(wrong(format!("there is no parameter {name}")));
        }
        // A refused request may be one that the document does not allow, which the test wants.
        if answer.status < 400 {
            let body = match body {
                [] => None,
                text => Some(serde_json::from_slice(text).map_err(|error| wrong(format!("the request: {error}")))?),
            };
            conforms(operation.request.as_ref(), body.as_ref())
                .map_err(|what| wrong(format!("the request: {what}")))?;
        }
        let class = format!("{}xx", answer.status / 100);
        let response = operation.responses.get(&answer.status.to_string()).or_else(|| operation.responses.get(&class));
        let response = response.ok_or_else(|| wrong(format!("no response has the status {}", answer.status)))?;
        let body = Some(&answer.body).filter(|body| !body.is_null());
        conforms(response.as_ref(), body).map_err(|what| wrong(format!("the response {}: {what}", answer.status)))
    }
}

impl Operation {
    fn is_at(&self, path: &str) -> bool {
        let (mut pattern, mut path) = (self.path.split('/'), path.split('/'));
        loop {
            match (pattern.next(), path.next()) {
                (None, None) => return true,
                (Some(pattern), Some(part)) if pattern == part || pattern.starts_with('{') => {}
                _ => return false,
            }
        }
    }
}

fn conforms(validator: Option<&Validator>, body: Option<&Value>) -> Result<(), String> {
    match (validator, body) {
        (None, None) => Ok(()),
        (None, Some(body)) => Err(format!("no body is allowed: {body}")),
        (Some(_), None) => Err("the body is missing".to_owned()),
        (Some(validator), Some(body)) => {
            validator.validate(body).map_err(|error| format!("{}: {error}", error.instance_path()))
        }
    }
}

/// The validator of the JSON body that a request or a response has.
fn validator(described: &Value, components: &Value) -> Result<Option<Validator>> {
    let Some(body) = described.pointer("/content/application~1json/schema") else { return Ok(None) };
    let mut root = components.clone();
    if let Some(root) = root.as_object_mut() {
        root.insert("allOf".to_owned(), json!([schema(body, false)]));
    }
    Ok(Some(jsonschema::draft4::new(&root).map_err(|error| anyhow!("{error}"))?))
}

fn object(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

/// A schema of OpenAPI 3.0 as one of JSON Schema, which has `null` as a type of its own. `strict`
/// forbids properties that are not listed.
fn schema(value: &Value, strict: bool) -> Value {
    match value {
        Value::Array(entries) => entries.iter().map(|entry| schema(entry, strict)).collect(),
        Value::Object(entries) => {
            let mut plain = Map::new();
            for (key, value) in entries {
                let value = match (key.as_str(), value) {
                    ("properties", Value::Object(named)) => {
                        named.iter().map(|(name, property)| (name.clone(), schema(property, strict))).collect()
                    }
                    _ => schema(value, strict),
                };
                plain.insert(key.clone(), value);
            }
            if strict && plain.contains_key("properties") && !plain.contains_key("additionalProperties") {
                plain.insert("additionalProperties".to_owned(), json!(false));
            }
            if plain.remove("nullable") == Some(json!(true)) {
                return json!({"anyOf": [{"type": "null"}, plain]});
            }
            Value::Object(plain)
        }
        other => other.clone(),
    }
}
