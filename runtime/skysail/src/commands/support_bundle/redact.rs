//! What a support bundle does not contain. The manager writes no secret into an object or into its
//! log; users, and other programs, may. Patterns find what usually is a secret, and cannot find
//! every secret.

use std::borrow::Cow;

use anyhow::Context as _;
use regex::{Captures, Regex};
use serde_json::Value;

use crate::provider_file::KIND;

/// What stands in place of a value.
pub(super) const REDACTED: &str = "REDACTED";

/// The longest annotation that remains, in bytes. Tools keep whole objects in longer ones.
const ANNOTATION_BYTES_MAX: usize = 1 << 10;

/// A name after which a secret stands, whatever separates the two.
const STRONG: &str = r"passw(?:or)?d|passphrase|pwd|secret[-_.]?(?:access[-_.]?)?key|(?:api|access|account|application|consumer|private)[-_.]?key|client-key-data";

/// A name after which a secret may stand, and in prose anything else: `the token: 401`.
const WEAK: &str = "token|secret";

/// A value in double quotes, also in those of a string within a string.
const QUOTED: &str = r#"\\+"[^"]*"|"(?:[^"\\]|\\.)*""#;

/// A value in quotes, or up to the next separator.
const VALUE: &str = r#"QUOTED|'[^']*'|[^\s"',;&}\]\\:][^\s"',;&}\]\\]*"#;

/// A pattern, with the names above in capitals; its group `value` is the secret, or all of it is.
const PATTERNS: [&str; 16] = [
    // A private key. Each of its lines may have the time before it. One without its end was cut
    // off.
    r#"-----BEGIN [A-Z ]*PRIVATE KEY-----[^{}\[\]"]*?-----END [A-Z ]*PRIVATE KEY-----"#,
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\\[nr]|[A-Za-z0-9+/=\s:.-])*",
    // The same in base64, as a kubeconfig has it.
    r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]+",
    // A password, or a token, before the host of a URL.
    r#"[A-Za-z][A-Za-z0-9+.-]*://(?<value>[^/\s"'<>]+)@"#,
    // The signature of a URL.
    r#"(?i)[?&](?:sig|x-amz-signature|x-amz-security-token)=(?<value>[^&\s"']+)"#,
    // Headers, as programs log them; a cookie may have quotes.
    r#"(?i)\b[\w-]*session\w*=(?<value>VALUE)"#,
    r#"(?i)\b(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*token|[a-z-]*session-id)\\*["']?\s*[:=]\s*(?<value>QUOTED|\[[^\]\r\n]*\]|[^"'\[\r\n}]+)"#,
    r"(?i)\bbearer\s+(?<value>[A-Za-z0-9._~+/=-]{16,})",
    r"\bBasic\s+(?<value>[A-Za-z0-9+/]{12,}={0,2})",
    // A JSON Web Token, the ID of an AWS access key, tokens of GitHub, GitLab and Vault.
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*",
    r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}\b|(?:gh[pousr]_|glpat-|hvs\.)[A-Za-z0-9_.-]+)",
    // A Docker configuration, and XML.
    r#""auth"\s*:\s*(?<value>"[^"]*")"#,
    r"(?i)<(?:\w+:)?password>(?<value>[^<]*)",
    // Names and values: INI, JSON, YAML, flags, queries.
    r#"(?i)(?:(?:STRONG|WEAK)\\*["']?\s*=\s*|(?:STRONG)\\*["']?\s*:[ \t]*|(?:WEAK)\\*["']?:)(?<value>VALUE)"#,
    r#"(?i)(?:(?:WEAK)\\*["']?\s*:[ \t]*|--[\w-]*(?:STRONG|WEAK)\s+)(?<value>QUOTED|'[^']*'|[A-Za-z0-9._~+/=-]{16,})"#,
    // A line of YAML.
    r"(?im)^[ \t]*(?:- )?[\w.-]*(?:STRONG|WEAK):[ \t]+(?<value>\S.*)$",
];

/// A line of a cloud-config: all after the name is its value, also in the deeper lines below.
const CONFIG_LINE: &str = r#"(?i)^[ \t]*(?:- )?["']?[\w.-]*(?:STRONG|WEAK)["']?\s*[:=](?<value>.*)$"#;

/// The fields of objects that are long and say nothing about the manager.
const USELESS: [&str; 4] =
    ["/metadata/managedFields", "/status/images", "/status/volumesAttached", "/status/volumesInUse"];

/// The compiled patterns.
#[derive(Debug)]
pub(super) struct Redaction {
    patterns: Vec<Regex>,
    config_line: Regex,
    /// A key, a flag, or the name of a variable or header, whose value is a secret.
    secret_name: Regex,
    with_config: bool,
}

impl Redaction {
    /// With `with_config` the cloud-configs of Providers remain, with the patterns applied.
    ///
    /// # Errors
    /// A pattern is invalid; a test shows that none is.
    pub(super) fn new(with_config: bool) -> anyhow::Result<Self> {
        let compiled = |pattern: &str| {
            let pattern = pattern
                .replace("STRONG", STRONG)
                .replace("WEAK", WEAK)
                .replace("VALUE", VALUE)
                .replace("QUOTED", QUOTED);
            Regex::new(&pattern).context("a pattern is invalid")
        };
        Ok(Self {
            patterns: PATTERNS.iter().map(|pattern| compiled(pattern)).collect::<anyhow::Result<_>>()?,
            config_line: compiled(CONFIG_LINE)?,
            secret_name: compiled("(?i)(?:STRONG|WEAK|authorization|cookie)s?$")?,
            with_config,
        })
    }

    /// The text without what looks like a secret.
    pub(super) fn text(&self, text: &str) -> String {
        let mut text = Cow::Borrowed(text);
        for pattern in &self.patterns {
            if let Cow::Owned(changed) = pattern.replace_all(&text, hidden) {
                text = Cow::Owned(changed);
            }
        }
        text.into_owned()
    }

    /// A cloud-config without what looks like a secret, also where its value has several words or
    /// lines.
    fn config(&self, config: &str) -> String {
        let mut lines = Vec::new();
        let mut below = None;
        for line in config.lines() {
            let depth = line.len() - line.trim_start().len();
            if below.is_some_and(|above| depth > above) {
                continue;
            }
            below = None;
            match self.config_line.captures(line).and_then(|found| found.name("value")) {
                Some(value) => {
                    below = Some(depth);
                    lines.push(format!("{} {REDACTED}", line.get(..value.start()).unwrap_or_default()));
                }
                None => lines.push(self.text(line)),
            }
        }
        lines.join("\n")
    }

    /// Takes secrets and useless fields out of an object of the cluster.
    pub(super) fn object(&self, object: &mut Value) {
        for path in USELESS {
            take(object, path);
        }
        if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            for value in annotations.values_mut().filter(|value| holds_an_object(value)) {
                *value = REDACTED.into();
            }
        }
        let is_provider = object.get("kind").is_some_and(|kind| kind == KIND);
        let config = object.pointer_mut("/spec/config").filter(|_| is_provider).map(Value::take);
        self.walk(object);
        if let (Some(config), Some(place)) = (config, object.pointer_mut("/spec/config")) {
            let kept = config.as_str().filter(|_| self.with_config).map(|config| self.config(config));
            *place = kept.unwrap_or_else(|| REDACTED.to_owned()).into();
        }
    }

    fn walk(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => self.walk_list(items),
            Value::Object(fields) => {
                let is_secret = fields.get("name").and_then(Value::as_str).is_some_and(|name| self.is_secret(name));
                for (key, value) in fields {
                    match (&**key, &mut *value) {
                        ("env", Value::Array(variables)) => variables.iter_mut().for_each(hide_variable),
                        ("value", value) if is_secret => hide(value),
                        (key, value) if self.is_secret(key) && !value.is_object() => hide(value),
                        (_, value) => self.walk(value),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A list may be the arguments of a command: a flag, and its value behind it.
    fn walk_list(&self, items: &mut [Value]) {
        let mut is_value = false;
        for item in items {
            let is_flag = item.as_str().is_some_and(|text| text.starts_with('-') && self.is_secret(text));
            if is_value {
                hide(item);
            } else {
                self.walk(item);
            }
            is_value = is_flag;
        }
    }

    fn is_secret(&self, name: &str) -> bool {
        self.secret_name.is_match(name)
    }
}

/// The text around the secret of a pattern, and in its place the same kind of value.
fn hidden(found: &Captures<'_>) -> String {
    let (Some(all), Some(value)) = (found.get(0), found.name("value")) else { return REDACTED.to_owned() };
    let head = all.as_str().get(..value.start() - all.start()).unwrap_or_default();
    let tail = all.as_str().get(value.end() - all.start()..).unwrap_or_default();
    let value = value.as_str();
    let quote = value.find(['"', '\'']).and_then(|at| value.get(..=at)).filter(|quote| value.starts_with(quote));
    match value {
        "null" | "true" | "false" => all.as_str().to_owned(),
        _ => match quote.filter(|quote| quote.trim_start_matches('\\').len() == 1) {
            Some(quote) => format!("{head}{quote}{REDACTED}{quote}{tail}"),
            None => format!("{head}{REDACTED}{tail}"),
        },
    }
}

/// Hides a text or a number, and the items of a list. A truth value is no secret.
fn hide(value: &mut Value) {
    match value {
        Value::String(_) | Value::Number(_) => *value = REDACTED.into(),
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Null | Value::Bool(_) | Value::Object(_) => {}
    }
}

/// An environment variable of a container keeps its name, and where its value comes from.
fn hide_variable(variable: &mut Value) {
    if let Some(value) = variable.get_mut("value") {
        *value = REDACTED.into();
    }
}

/// Whether an annotation holds the object a second time, as kubectl and other tools write it.
fn holds_an_object(annotation: &Value) -> bool {
    annotation.as_str().is_some_and(|text| {
        text.len() > ANNOTATION_BYTES_MAX
            || serde_json::from_str::<Value>(text).is_ok_and(|value| value.get("spec").is_some())
    })
}

/// Removes the field at this path.
fn take(object: &mut Value, path: &str) {
    if let Some((parent, field)) = path.rsplit_once('/')
        && let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut)
    {
        parent.remove(field);
    }
}

#[cfg(test)]
mod tests;
