//! What the operator wants left out of recordings: fields of JSON, and parts of texts.

use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use regex::{Match, Regex};
use serde_json::Value;

use super::{Body, Exchange, Failure, Recording, Response};

/// In place of what is left out, with a number for each value, so that two machines stay two
/// machines in a replayed call. URLs, host names and JSON take these characters as they are.
const REDACTED: &str = "redacted-";

/// The rules of a redaction. Cloning is cheap.
#[derive(Clone, Default)]
pub struct Redact {
    rules: Arc<[Rule]>,
}

#[derive(Clone, Debug)]
enum Rule {
    /// The value behind a JSON pointer (RFC 6901) in the arguments, the answer and each body and
    /// value of the cache that is JSON. The segment `*` stands for every entry.
    Pointer(String),
    /// What matches in any text.
    Regex(Regex),
}

/// A rule that cannot be used. The message names the rule, the reason and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// No regular expression.
    #[error(
        "the rule {rule:?} is not a regular expression: {reason}; write one, or a JSON pointer, which begins with a slash"
    )]
    Regex {
        /// The rule.
        rule: String,
        /// Why.
        reason: String,
    },
    /// Matches between any two characters.
    #[error("the rule {rule:?} matches an empty text; write a rule that requires at least one character")]
    Empty {
        /// The rule.
        rule: String,
    },
}

impl Redact {
    /// Reads rules: one that begins with a slash is a JSON pointer, any other a regular expression.
    ///
    /// # Errors
    /// The first rule that cannot be used.
    pub fn parse(rules: &[String]) -> Result<Self, RuleError> {
        Ok(Self { rules: rules.iter().map(|rule| Rule::parse(rule)).collect::<Result<_, _>>()? })
    }

    /// The rules as they were given.
    pub(crate) fn rules(&self) -> Vec<String> {
        let text = |rule: &Rule| match rule {
            Rule::Pointer(pointer) => pointer.clone(),
            Rule::Regex(regex) => regex.as_str().to_owned(),
        };
        self.rules.iter().map(text).collect()
    }

    /// Leaves out of a recording what the rules name.
    pub(crate) fn apply(&self, recording: &mut Recording) {
        let names = &mut Names::default();
        for rule in &*self.rules {
            match rule {
                Rule::Regex(regex) => each_text(recording, &mut |text| names.replaced(regex, text)),
                Rule::Pointer(pointer) => each_json(recording, &mut |value| names.redact(value, pointer)),
            }
        }
    }

    /// Leaves out of a request what the rules name: a request of a replayed call is compared with
    /// the recorded one.
    pub(crate) fn apply_to_request(&self, exchange: &mut Exchange) {
        let names = &mut Names::default();
        for rule in &*self.rules {
            match rule {
                Rule::Regex(regex) => each_text_of_exchange(exchange, &mut |text| names.replaced(regex, text)),
                Rule::Pointer(pointer) => each_json_of_exchange(exchange, &mut |value| names.redact(value, pointer)),
            }
        }
    }
}

impl fmt::Debug for Redact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redact").field(&self.rules()).finish()
    }
}

impl Rule {
    fn parse(rule: &str) -> Result<Self, RuleError> {
        if rule.starts_with('/') {
            return Ok(Self::Pointer(rule.to_owned()));
        }
        let regex = Regex::new(rule).map_err(|error| {
            // The error's text shows the expression again, over several lines.
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            RuleError::Regex { rule: rule.to_owned(), reason }
        })?;
        if regex.is_match("") { Err(RuleError::Empty { rule: rule.to_owned() }) } else { Ok(Self::Regex(regex)) }
    }
}

/// The values that are left out of one document, with the number of each.
#[derive(Default)]
struct Names(BTreeMap<String, usize>);

impl Names {
    fn of(&mut self, value: &str) -> String {
        let next = self.0.len() + 1;
        let number = self.0.entry(value.to_owned()).or_insert(next);
        format!("{REDACTED}{number}")
    }

    /// The text with names in place of what matches; none if nothing matches.
    fn replaced(&mut self, regex: &Regex, text: &str) -> Option<String> {
        // A name stays as it is: the rules apply to a replayed call, too.
        let is_value = |found: &Match<'_>| {
            !found.is_empty() && !names_in(text).any(|name| name.start <= found.start() && found.end() <= name.end)
        };
        let mut changed = None;
        let mut from = 0;
        for found in regex.find_iter(text).filter(is_value) {
            let changed: &mut String = changed.get_or_insert_default();
            changed.push_str(text.get(from..found.start()).unwrap_or_default());
            changed.push_str(&self.of(found.as_str()));
            from = found.end();
        }
        let mut changed = changed?;
        changed.push_str(text.get(from..).unwrap_or_default());
        Some(changed)
    }

    fn redact_each<'a>(&mut self, values: impl Iterator<Item = &'a mut Value>, pointer: &str) -> bool {
        values.filter_map(|value| self.redact(value, pointer).then_some(())).count() > 0
    }

    /// Replaces the values behind a pointer; returns whether there is one.
    fn redact(&mut self, value: &mut Value, pointer: &str) -> bool {
        let Some(rest) = pointer.strip_prefix('/') else {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if !names_in(&text).any(|name| name == (0..text.len())) {
                *value = Value::from(self.of(&text));
            }
            return true;
        };
        let (segment, rest) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let key = segment.replace("~1", "/").replace("~0", "~");
        match value {
            Value::Object(fields) if segment == "*" => self.redact_each(fields.values_mut(), rest),
            Value::Array(entries) if segment == "*" => self.redact_each(entries.iter_mut(), rest),
            Value::Object(fields) => fields.get_mut(&key).is_some_and(|value| self.redact(value, rest)),
            Value::Array(entries) => {
                let entry = key.parse().ok().and_then(|index: usize| entries.get_mut(index));
                entry.is_some_and(|value| self.redact(value, rest))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }
}

/// Where the text has names.
fn names_in(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices(REDACTED).filter_map(|(at, prefix)| {
        let digits = text.get(at + prefix.len()..)?.bytes().take_while(u8::is_ascii_digit).count();
        (digits > 0).then(|| at..at + prefix.len() + digits)
    })
}

/// Gives each text to `change`, which returns the text that replaces it.
pub(crate) fn each_text(recording: &mut Recording, change: &mut dyn FnMut(&str) -> Option<String>) {
    let Recording { arguments, config, cache, requests, answer, .. } = recording;
    change_text(config, change);
    for value in [arguments].into_iter().chain(answer) {
        each_text_of_value(value, change);
    }
    for body in cache.values_mut().flatten() {
        change_body(body, change);
    }
    for exchange in requests {
        each_text_of_exchange(exchange, change);
    }
}

fn each_text_of_exchange(exchange: &mut Exchange, change: &mut dyn FnMut(&str) -> Option<String>) {
    let Exchange { method: _, url, headers, credential: _, timeout_ms: _, body, response, failure } = exchange;
    change_text(url, change);
    let mut bodies = vec![body];
    let mut all_headers: Vec<_> = headers.iter_mut().collect();
    if let Some(Response { status: _, headers, body }) = response {
        all_headers.extend(headers);
        bodies.push(body);
    }
    if let Some(Failure { message, .. }) = failure {
        change_text(message, change);
    }
    for header in all_headers {
        // A match in the name would make another header of it.
        if let Some((name, value)) = header.split_once(": ")
            && let Some(value) = change(value)
        {
            *header = format!("{name}: {value}");
        }
    }
    for body in bodies.into_iter().flatten() {
        change_body(body, change);
    }
}

fn each_text_of_value(value: &mut Value, change: &mut dyn FnMut(&str) -> Option<String>) {
    match value {
        Value::String(text) => change_text(text, change),
        Value::Array(entries) => entries.iter_mut().for_each(|entry| each_text_of_value(entry, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_text_of_value(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn change_text(text: &mut String, change: &mut dyn FnMut(&str) -> Option<String>) {
    if let Some(changed) = change(text) {
        *text = changed;
    }
}

fn change_body(body: &mut Body, change: &mut dyn FnMut(&str) -> Option<String>) {
    if let Some(changed) = body.text().and_then(change) {
        *body = changed.into();
    }
}

/// Gives each JSON document to `change`, which returns whether it changed the document.
fn each_json(recording: &mut Recording, change: &mut dyn FnMut(&mut Value) -> bool) {
    let Recording { arguments, cache, requests, answer, .. } = recording;
    change(arguments);
    if let Some(answer) = answer.as_mut().and_then(|answer| answer.get_mut("ok")) {
        change(answer);
    }
    for body in cache.values_mut().flatten() {
        change_json(body, change);
    }
    for exchange in requests {
        each_json_of_exchange(exchange, change);
    }
}

fn each_json_of_exchange(exchange: &mut Exchange, change: &mut dyn FnMut(&mut Value) -> bool) {
    let response = exchange.response.as_mut().and_then(|response| response.body.as_mut());
    for body in exchange.body.as_mut().into_iter().chain(response) {
        change_json(body, change);
    }
}

fn change_json(body: &mut Body, change: &mut dyn FnMut(&mut Value) -> bool) {
    let Ok(mut value) = serde_json::from_slice::<Value>(&body.0) else { return };
    if change(&mut value) {
        *body = Body(Bytes::from(value.to_string()));
    }
}
