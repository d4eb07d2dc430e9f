//! A Sigstore instance of the tests, for data that no real instance would write: a certificate
//! authority, and a log in the format of Rekor 1.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SigningKey as _, date_time_ymd,
};
use serde_json::{Value, json};

use crate::Digest;

/// Noon of the day on which the certificates are valid.
pub(super) const NOON: i64 = 1_767_268_800;

pub(super) const ISSUER: &str = "https://issuer.example";
pub(super) const SUBJECT: &str = "release@skysail.example";

pub(super) struct Authority {
    ca: Issuer<'static, KeyPair>,
    ca_der: Vec<u8>,
    pub(super) log: KeyPair,
}

/// A certificate and its key.
pub(super) struct Leaf {
    pub(super) key: KeyPair,
    pub(super) der: Vec<u8>,
}

/// The content of a certificate.
pub(super) struct Wanted {
    pub(super) names: Vec<SanType>,
    pub(super) usage: ExtendedKeyUsagePurpose,
    pub(super) issuer: Option<&'static str>,
}

impl Default for Wanted {
    fn default() -> Self {
        let names = vec![SanType::Rfc822Name(SUBJECT.try_into().unwrap())];
        Self { names, usage: ExtendedKeyUsagePurpose::CodeSigning, issuer: Some(ISSUER) }
    }
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let ca_der = params.self_signed(&key).unwrap().der().to_vec();
        Self { ca: Issuer::new(params, key), ca_der, log: KeyPair::generate().unwrap() }
    }

    /// A trusted root as `cosign trusted-root create` writes it.
    pub(super) fn root(&self) -> Value {
        let log = self.log.subject_public_key_info();
        let window = json!({ "start": "2020-01-01T00:00:00Z" });
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [{
                "baseUrl": "https://log.example", "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": STANDARD.encode(&log), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": window,
                },
                "logId": { "keyId": STANDARD.encode(Digest::of(&log).as_bytes()) },
            }],
            "certificateAuthorities": [{
                "subject": {}, "uri": "https://ca.example",
                "certChain": { "certificates": [{ "rawBytes": STANDARD.encode(&self.ca_der) }] }, "validFor": window,
            }],
        })
    }

    pub(super) fn leaf(&self, wanted: Wanted) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let Wanted { names, usage, issuer } = wanted;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = names;
        params.extended_key_usages = vec![usage];
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 1, 2);
        if let Some(issuer) = issuer {
            let text = [&[0x0c, u8::try_from(issuer.len()).unwrap()], issuer.as_bytes()].concat();
            params.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57264, 1, 8], text)];
        }
        let der = params.signed_by(&key, &self.ca).unwrap().der().to_vec();
        Leaf { key, der }
    }

    pub(super) fn leaf_of_release(&self) -> Leaf {
        self.leaf(Wanted::default())
    }

    /// The only entry of the log, with the promise and the proof.
    pub(super) fn entry(&self, (kind, body): (&str, String), time: i64) -> Value {
        let id = Digest::of(&self.log.subject_public_key_info());
        let encoded = STANDARD.encode(&body);
        let text = format!(r#"{{"body":"{encoded}","integratedTime":{time},"logID":"{}","logIndex":0}}"#, id.hex());
        let promise = self.log.sign(text.as_bytes()).unwrap();
        let hash = Digest::of(&[&[0], body.as_bytes()].concat());
        let root = STANDARD.encode(hash.as_bytes());
        let note = format!("log.example\n1\n{root}\n");
        let signature = [&id.as_bytes()[..4], &self.log.sign(note.as_bytes()).unwrap()].concat();
        let envelope = format!("{note}\n\u{2014} log.example {}\n", STANDARD.encode(signature));
        json!({
            "logIndex": "0", "logId": { "keyId": STANDARD.encode(id.as_bytes()) },
            "kindVersion": { "kind": kind, "version": "0.0.1" }, "integratedTime": time.to_string(),
            "inclusionPromise": { "signedEntryTimestamp": STANDARD.encode(promise) },
            "inclusionProof": {
                "logIndex": "0", "rootHash": root, "treeSize": "1", "hashes": [],
                "checkpoint": { "envelope": envelope },
            },
            "canonicalizedBody": encoded,
        })
    }

    /// A bundle as cosign 3 writes it, with one entry of the log.
    pub(super) fn bundle(&self, leaf: &Leaf, envelope: &Value, time: i64) -> Value {
        json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": { "rawBytes": STANDARD.encode(&leaf.der) },
                "tlogEntries": [self.entry(dsse_body(&leaf.der, envelope), time)],
            },
            "dsseEnvelope": envelope,
        })
    }
}

impl Leaf {
    pub(super) fn pem(&self) -> String {
        pem(&self.der)
    }
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}

/// A signed envelope.
pub(super) fn envelope(key: &KeyPair, artifact: Digest) -> Value {
    let kind = "application/vnd.in-toto+json";
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1", "predicateType": "https://sigstore.dev/cosign/sign/v1", "predicate": {},
        "subject": [{ "digest": { "sha256": artifact.hex() } }],
    });
    let payload = statement.to_string();
    let message = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
    let signature = STANDARD.encode(key.sign(message.as_bytes()).unwrap());
    json!({ "payload": STANDARD.encode(payload), "payloadType": kind, "signatures": [{ "sig": signature }] })
}

/// Rekor 1's entry for an envelope.
pub(super) fn dsse_body(certificate: &[u8], envelope: &Value) -> (&'static str, String) {
    let payload = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
    let hash = |bytes: &[u8]| json!({ "algorithm": "sha256", "value": Digest::of(bytes).hex() });
    let body = json!({ "apiVersion": "0.0.1", "kind": "dsse", "spec": {
        "envelopeHash": hash(envelope.to_string().as_bytes()), "payloadHash": hash(&payload),
        "signatures": [{ "signature": envelope["signatures"][0]["sig"], "verifier": STANDARD.encode(pem(certificate)) }],
    } });
    ("dsse", body.to_string())
}

/// Rekor 1's entry for a plain signature.
pub(super) fn plain_body(certificate: &[u8], payload: &[u8], signature: &str) -> (&'static str, String) {
    let body = json!({ "apiVersion": "0.0.1", "kind": "hashedrekord", "spec": {
        "data": { "hash": { "algorithm": "sha256", "value": Digest::of(payload).hex() } },
        "signature": { "content": signature, "publicKey": { "content": STANDARD.encode(pem(certificate)) } },
    } });
    ("hashedrekord", body.to_string())
}
