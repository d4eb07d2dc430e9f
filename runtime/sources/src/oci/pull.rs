//! Pulls a component by its reference. A tag is resolved to a digest once; all later requests are
//! by digest.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderName, HeaderValue, Method, StatusCode,
    header::{ACCEPT, CONTENT_RANGE, RANGE},
};
use oci_spec::distribution::Reference;
use tokio::time::{Instant, sleep};

use super::{
    conversation::{Access, Conversation, Question, malformed, verify},
    manifest::{self, Blob, Leads},
    registry::Registry,
    signature::{self, SignaturePolicy},
};
use crate::{Digest, error::RegistryFailure};

/// The header with the digest of the answered content.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Documents between the reference and the component: an index and a manifest.
const DEPTH_MAX: usize = 2;

/// The first wait before an interrupted download is resumed; each further wait is twice as long.
const RESUME_AFTER: Duration = Duration::from_millis(200);

/// How often one download is resumed.
const RESUMES_MAX: u32 = 5;

/// A component from a registry.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The blob, which nothing but its digest and signatures has been checked of yet.
    pub bytes: Bytes,
    /// The digest of `bytes`.
    pub digest: Digest,
    /// The digest of the manifest or index, which a reference by digest names.
    pub manifest: Digest,
}

/// Limits and signature policy of a pull.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// Largest component, in bytes.
    pub bytes_max: u64,
    /// The time for the whole pull. Each mirror has a share of it, so that a slow mirror leaves
    /// time for the next host.
    pub timeout: Duration,
    /// The signatures that the artifact has to have; without a policy, none is required.
    pub signatures: Option<SignaturePolicy>,
}

impl Registry {
    /// Pulls the component; `None` if the reference resolves to the manifest `known`.
    ///
    /// # Errors
    /// The failure of the registry itself, which is tried after its mirrors.
    pub async fn pull(
        &self,
        reference: &Reference,
        known: Option<Digest>,
        options: &PullOptions,
    ) -> Result<Option<Pulled>, RegistryFailure> {
        let deadline = Instant::now() + options.timeout;
        let mut last = None;
        let share = options.timeout / u32::try_from(self.hosts().count()).unwrap_or(u32::MAX).max(1);
        for host in self.hosts() {
            let (until, after) = match host == self.options.host {
                true => (deadline, options.timeout),
                false => (deadline.min(Instant::now() + share), share),
            };
            let mut pull =
                Pull { conversation: Conversation::new(self, host, reference.repository(), Access::Pull), options };
            let pulled = tokio::time::timeout_at(until, pull.run(reference, known))
                .await
                .unwrap_or_else(|_| Err(RegistryFailure::TooSlow { host: host.to_owned(), after }));
            match pulled {
                Ok(pulled) => return Ok(pulled),
                Err(failure) => {
                    if host != self.options.host {
                        tracing::warn!(host, reason = failure.to_string(), "the mirror failed; the next host is tried");
                    }
                    last = Some(failure);
                }
            }
        }
        Err(last.unwrap_or_else(|| malformed("the reference", &"no host")))
    }
}

struct Pull<'a> {
    conversation: Conversation<'a>,
    options: &'a PullOptions,
}

impl Pull<'_> {
    async fn run(&mut self, reference: &Reference, known: Option<Digest>) -> Result<Option<Pulled>, RegistryFailure> {
        let first = match reference.digest() {
            Some(digest) => digest.parse().map_err(|error| malformed("the digest of the reference", &error))?,
            None => self.resolve(reference.tag().unwrap_or("latest")).await?,
        };
        if known == Some(first) {
            return Ok(None);
        }
        // Before any other content of the artifact is read.
        if let Some(policy) = &self.options.signatures {
            signature::require(&mut self.conversation, first, policy).await?;
        }
        let blob = self.follow(first).await?;
        if blob.size > self.options.bytes_max {
            return Err(RegistryFailure::TooLarge { size: blob.size, max: self.options.bytes_max });
        }
        let bytes = self.blob(blob).await?;
        Ok(Some(Pulled { bytes, digest: blob.digest, manifest: first }))
    }

    /// The digest that the tag names now.
    async fn resolve(&mut self, tag: &str) -> Result<Digest, RegistryFailure> {
        let (path, what) = (format!("manifests/{tag}"), format!("manifest {tag}"));
        let mut question = Question::new(Method::HEAD, &path, what.clone());
        question.headers.insert(ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        let response = self.conversation.ask(question).await?;
        if let Some(digest) = response.headers().get(CONTENT_DIGEST).and_then(|value| value.to_str().ok()) {
            return digest.parse().map_err(|error| malformed("the tag's digest", &error));
        }
        let bytes = self.conversation.manifest(&path, (what, "the manifest"), None).await?;
        Ok(Digest::of(&bytes))
    }

    /// Follows an index and a manifest to the component's blob.
    async fn follow(&mut self, first: Digest) -> Result<Blob, RegistryFailure> {
        let mut next = first;
        for _ in 0..DEPTH_MAX {
            let said = (format!("manifest {next}"), "the manifest");
            let bytes = self.conversation.manifest(&format!("manifests/{next}"), said, Some(next)).await?;
            match manifest::read(&bytes)? {
                Leads::Blob(blob) => return Ok(blob),
                Leads::Manifest(digest) => next = digest,
            }
        }
        Err(RegistryFailure::Layout("an index within an index; reference the digest of the right one".to_owned()))
    }

    /// The whole blob. An interrupted download is resumed.
    async fn blob(&mut self, blob: Blob) -> Result<Bytes, RegistryFailure> {
        let mut body = BytesMut::new();
        let mut pause = RESUME_AFTER;
        for resumes_left in (0..=RESUMES_MAX).rev() {
            let before = body.len();
            match self.download(blob, &mut body).await {
                Ok(()) if body.len() as u64 == blob.size => break,
                // The connection was closed cleanly before the end of the blob.
                Ok(()) if resumes_left > 0 && body.len() > before => {}
                Ok(()) => return Err(RegistryFailure::WrongSize { expected: blob.size, actual: body.len() as u64 }),
                Err(RegistryFailure::Unreachable { .. }) if resumes_left > 0 => {}
                Err(failure) => return Err(failure),
            }
            sleep(pause).await;
            pause *= 2;
        }
        verify("the component", blob.digest, &body)?;
        Ok(body.freeze())
    }

    async fn download(&mut self, blob: Blob, body: &mut BytesMut) -> Result<(), RegistryFailure> {
        let path = format!("blobs/{}", blob.digest);
        let mut question = Question::new(Method::GET, &path, "the component");
        if !body.is_empty() {
            let range = HeaderValue::from_str(&format!("bytes={}-", body.len()));
            question.headers.insert(RANGE, range.map_err(|error| malformed("the range", &error))?);
        }
        let response = self.conversation.ask(question).await?;
        let continues = response.status() == StatusCode::PARTIAL_CONTENT
            && response.headers().get(CONTENT_RANGE).is_some_and(|range| {
                range.to_str().is_ok_and(|range| range.starts_with(&format!("bytes {}-", body.len())))
            });
        if !continues {
            body.clear();
        }
        self.conversation.append(response, body, blob.size).await
    }
}
