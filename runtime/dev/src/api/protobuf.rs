//! Kubernetes' protobuf encoding, read only: `kubectl create configmap` and similar commands always
//! send it.
//!
//! Answers are always JSON, which those clients accept. The module knows only the messages that
//! kubectl's typed commands send for the kinds of this project (`messages`). An unknown message or
//! field is `415 UnsupportedMediaType`, so that no data is lost silently.

mod messages;

use base64::Engine as _;
use serde_json::{Map, Value, json};

use self::messages::{Field, Kind, UNKNOWN, fields_of};

/// The prefix of every encoded object.
const MAGIC: &[u8] = b"k8s\0";
/// The maximum nesting of messages: more than any known message has.
const DEPTH_MAX: usize = 16;

/// Decodes an object; `None` for an unknown or invalid message.
pub(crate) fn decode(bytes: &[u8]) -> Option<Value> {
    let envelope = message(UNKNOWN, bytes.strip_prefix(MAGIC)?, 0)?;
    let (api_version, kind) = (envelope.pointer("/typeMeta/apiVersion")?, envelope.pointer("/typeMeta/kind")?);
    let fields = fields_of(api_version.as_str()?, kind.as_str()?)?;
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
        let Some((_, name, kind, repeated)) = fields.iter().find(|(n, ..)| *n == number) else {
            if payload.is_zero() {
                continue;
            }
            return None;
        };
        if let Kind::Map(binary) = kind {
            let (key, value) = entry(payload, *binary)?;
            let map = object.entry(*name).or_insert_with(|| json!({}));
            super::object::map_mut(map).insert(key, value);
            continue;
        }
        let value = match scalar(*kind, payload, depth)? {
            Some(value) => value,
            None if *repeated && matches!(kind, Kind::Text) => json!(""),
            None => continue,
        };
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

impl Payload<'_> {
    /// The value that Go writes for an unset field.
    fn is_zero(&self) -> bool {
        match self {
            Self::Number(number) => *number == 0,
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }
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

/// The outer `None` is an invalid message, the inner one a value that means absent.
fn scalar(kind: Kind, payload: Payload<'_>, depth: usize) -> Option<Option<Value>> {
    Some(Some(match (kind, payload) {
        (Kind::Ignored, _) | (Kind::Text, Payload::Bytes([])) => return Some(None),
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

    /// `runtime.Unknown` with a v1 `ServiceAccount` of these bytes.
    fn service_account(raw: &[u8]) -> Vec<u8> {
        let mut bytes = b"k8s\0\x0a\x14\x0a\x02v1\x12\x0eServiceAccount\x12".to_vec();
        bytes.push(u8::try_from(raw.len()).unwrap());
        bytes.extend(raw);
        bytes
    }

    #[test]
    fn an_unknown_field_is_refused_unless_it_is_empty() {
        let named = b"\x0a\x03\x0a\x01a";
        assert_eq!(decode(&service_account(named)).unwrap()["metadata"]["name"], "a");
        let with = |more: &[u8]| decode(&service_account(&[named, more].concat()));
        assert!(with(b"\x20\x00").is_some(), "automountServiceAccountToken: false");
        assert!(with(b"\x20\x01").is_none(), "automountServiceAccountToken: true");
    }

    #[test]
    fn broken_bytes_are_no_object() {
        for bytes in [&b"k8s\0\xff"[..], b"k8s\0\x0a\x7f", b"nope", b"k8s\0"] {
            assert_eq!(decode(bytes), None);
        }
    }
}
