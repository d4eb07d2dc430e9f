//! Kubernetes' protobuf encoding, read only: `kubectl create configmap` and its kin send it without asking.
//!
//! Answers are always JSON, which those clients accept. Only the messages that kubectl's typed commands send for the
//! kinds of this project are known; anything else is `415 UnsupportedMediaType`.

use base64::Engine as _;
use serde_json::{Map, Value, json};

/// What every encoded object begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Messages inside messages: deeper than any known one.
const DEPTH_MAX: usize = 16;

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Bytes,
    Int,
    Bool,
    Time,
    IntOrString,
    Message(&'static [Field]),
    /// A map from text to text (false) or bytes (true).
    Map(bool),
}

/// Number, name, kind, repeated.
type Field = (u64, &'static str, Kind, bool);

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
static META_ONLY: &[Field] = &[(1, "metadata", Kind::Message(META), false)];
static PORT: &[Field] = &[
    (1, "name", Kind::Text, false),
    (2, "protocol", Kind::Text, false),
    (3, "port", Kind::Int, false),
    (4, "targetPort", Kind::IntOrString, false),
    (5, "nodePort", Kind::Int, false),
    (6, "appProtocol", Kind::Text, false),
];
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
    (17, "ipFamilyPolicy", Kind::Text, false),
    (18, "clusterIPs", Kind::Text, true),
    (19, "ipFamilies", Kind::Text, true),
    (20, "allocateLoadBalancerNodePorts", Kind::Bool, false),
    (21, "loadBalancerClass", Kind::Text, false),
    (22, "internalTrafficPolicy", Kind::Text, false),
];
static SERVICE: &[Field] =
    &[(1, "metadata", Kind::Message(META), false), (2, "spec", Kind::Message(SERVICE_SPEC), false)];
static TYPE: &[Field] = &[(1, "apiVersion", Kind::Text, false), (2, "kind", Kind::Text, false)];
static UNKNOWN: &[Field] = &[(1, "typeMeta", Kind::Message(TYPE), false), (2, "raw", Kind::Bytes, false)];

/// Decodes an object; `None` for a message that is not known and for bytes that are no message.
pub(crate) fn decode(bytes: &[u8]) -> Option<Value> {
    let envelope = message(UNKNOWN, bytes.strip_prefix(MAGIC)?, 0)?;
    let (api_version, kind) = (envelope.pointer("/typeMeta/apiVersion")?, envelope.pointer("/typeMeta/kind")?);
    let fields = match (api_version.as_str()?, kind.as_str()?) {
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        ("v1", "Namespace" | "ServiceAccount") => META_ONLY,
        ("v1", "Service") => SERVICE,
        _ => return None,
    };
    let raw = base64::engine::general_purpose::STANDARD.decode(envelope.get("raw")?.as_str()?).ok()?;
    let mut object = message(fields, &raw, 0)?;
    super::object::set(&mut object, "/apiVersion", api_version.clone());
    super::object::set(&mut object, "/kind", kind.clone());
    Some(object)
}

fn message(fields: &[Field], mut bytes: &[u8], depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    let mut object = Map::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let (number, payload) = (tag >> 3, payload(tag & 7, &mut bytes)?);
        let Some((_, name, kind, repeated)) = fields.iter().find(|(n, ..)| *n == number) else { continue };
        if let Kind::Map(binary) = kind {
            let (key, value) = entry(payload, *binary)?;
            let map = object.entry(*name).or_insert_with(|| json!({}));
            super::object::map_mut(map).insert(key, value);
            continue;
        }
        let Some(value) = scalar(*kind, payload, depth)? else { continue };
        if *repeated {
            let list = object.entry(*name).or_insert_with(|| json!([]));
            list.as_array_mut()?.push(value);
        } else {
            object.insert((*name).to_owned(), value);
        }
    }
    Some(Value::Object(object))
}

enum Payload<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn payload<'a>(wire: u64, bytes: &mut &'a [u8]) -> Option<Payload<'a>> {
    match wire {
        0 => varint(bytes).map(Payload::Number),
        1 => take(bytes, 8).map(Payload::Bytes),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            take(bytes, length).map(Payload::Bytes)
        }
        5 => take(bytes, 4).map(Payload::Bytes),
        _ => None,
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn text(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes).ok().map(Value::from)
}

fn encoded(bytes: &[u8]) -> Value {
    base64::engine::general_purpose::STANDARD.encode(bytes).into()
}

/// The outer `None` is a broken message, the inner one a value that is as good as absent.
fn scalar(kind: Kind, payload: Payload<'_>, depth: usize) -> Option<Option<Value>> {
    Some(Some(match (kind, payload) {
        (Kind::Text, Payload::Bytes([])) => return Some(None),
        (Kind::Text, Payload::Bytes(bytes)) => text(bytes)?,
        (Kind::Bytes, Payload::Bytes(bytes)) => encoded(bytes),
        (Kind::Int, Payload::Number(number)) => Value::from(number.cast_signed()),
        (Kind::Bool, Payload::Number(number)) => Value::from(number != 0),
        (Kind::Message(fields), Payload::Bytes(bytes)) => message(fields, bytes, depth + 1)?,
        (Kind::Time, Payload::Bytes(bytes)) => {
            let parts = message(&[(1, "seconds", Kind::Int, false)], bytes, depth + 1)?;
            let Some(seconds) = parts.get("seconds").and_then(Value::as_i64) else { return Some(None) };
            match k8s_openapi::jiff::Timestamp::from_second(seconds) {
                Ok(time) => super::clock::stamp(time),
                Err(_) => return None,
            }
        }
        (Kind::IntOrString, Payload::Bytes(bytes)) => {
            let fields: &[Field] =
                &[(1, "type", Kind::Int, false), (2, "int", Kind::Int, false), (3, "text", Kind::Text, false)];
            let parts = message(fields, bytes, depth + 1)?;
            let chosen = if parts.get("type") == Some(&json!(1)) { "text" } else { "int" };
            return Some(parts.get(chosen).cloned());
        }
        _ => return None,
    }))
}

fn entry(payload: Payload<'_>, binary: bool) -> Option<(String, Value)> {
    let Payload::Bytes(bytes) = payload else { return None };
    let fields: &[Field] = &[(1, "key", Kind::Text, false), (2, "value", Kind::Bytes, false)];
    let pair = message(fields, bytes, 0)?;
    let key = pair.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
    let value = pair.get("value").and_then(Value::as_str).unwrap_or_default();
    if binary {
        return Some((key, value.into()));
    }
    let plain = base64::engine::general_purpose::STANDARD.decode(value).ok()?;
    Some((key, text(&plain)?))
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn broken_bytes_are_no_object() {
        for bytes in [&b"k8s\0\xff"[..], b"k8s\0\x0a\x7f", b"nope", b"k8s\0"] {
            assert_eq!(decode(bytes), None);
        }
    }
}
