//! Pushes a component to a registry in the CNCF layout, which `wkg`, `oras` and other hosts read.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header::CONTENT_TYPE};
use oci_spec::{
    distribution::Reference,
    image::{Descriptor, ImageManifestBuilder, MediaType, SCHEMA_VERSION},
};
use std::collections::HashMap;

use super::{
    conversation::{Access, Conversation, Place, Question, malformed},
    manifest,
    registry::Registry,
};
use crate::{Digest, error::RegistryFailure};

/// The annotation that names a layer's file.
const TITLE: &str = "org.opencontainers.image.title";

/// An artifact to push.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The component.
    pub component: Bytes,
    /// The file's name. Tools that pull files use it as the local name, and skip layers without a
    /// title.
    pub title: String,
    /// The config blob (`application/vnd.wasm.config.v0+json`).
    pub config: Bytes,
    /// Annotations of the manifest, such as `org.opencontainers.image.…`.
    pub annotations: HashMap<String, String>,
}

impl Registry {
    /// Pushes to the registry itself, not to its mirrors, and returns the manifest's digest. Blobs
    /// that the registry already has are not sent again.
    ///
    /// # Errors
    /// The failure of a request. The registry may then have blobs without a manifest, which
    /// registries garbage-collect.
    pub async fn push(&self, reference: &Reference, artifact: Artifact) -> Result<Digest, RegistryFailure> {
        let host = self.options.host.as_str();
        let mut push = Push { conversation: Conversation::new(self, host, reference.repository(), Access::Push) };
        let Artifact { component, title, config, annotations } = artifact;
        let mut layer = push.blob(manifest::LAYER, component).await?;
        layer.set_annotations(Some(HashMap::from([(TITLE.to_owned(), title)])));
        let config = push.blob(manifest::CONFIG, config).await?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageManifest)
            .config(config)
            .layers(vec![layer])
            .annotations(annotations)
            .build();
        let text = manifest.and_then(|manifest| manifest.to_string());
        let text = Bytes::from(text.map_err(|error| malformed("the new manifest", &error))?);
        let digest = Digest::of(&text);
        let name = reference.tag().map_or_else(|| digest.to_string(), str::to_owned);
        push.manifest(&name, text).await?;
        Ok(digest)
    }
}

struct Push<'a> {
    conversation: Conversation<'a>,
}

impl Push<'_> {
    async fn blob(&mut self, media_type: &str, bytes: Bytes) -> Result<Descriptor, RegistryFailure> {
        let digest = Digest::of(&bytes);
        let size = bytes.len() as u64;
        let path = format!("blobs/{digest}");
        match self.conversation.ask(Question::new(Method::HEAD, &path, "a blob")).await {
            Ok(_) => {}
            Err(RegistryFailure::NotFound { .. }) => self.upload(digest, bytes).await?,
            Err(failure) => return Err(failure),
        }
        let digest: oci_spec::image::Digest =
            digest.to_string().parse().map_err(|error| malformed("a digest", &error))?;
        Ok(Descriptor::new(MediaType::Other(media_type.to_owned()), size, digest))
    }

    /// Starts an upload and sends the whole blob in one request.
    async fn upload(&mut self, digest: Digest, bytes: Bytes) -> Result<(), RegistryFailure> {
        let mut begin = Question::new(Method::POST, "blobs/uploads/", "a blob upload");
        begin.headers.insert(HeaderName::from_static("content-length"), HeaderValue::from_static("0"));
        let response = self.conversation.ask(begin).await?;
        let mut url = self.conversation.location(&response.url, response.headers())?;
        url.query_pairs_mut().append_pair("digest", &digest.to_string());
        let mut question = Question::new(Method::PUT, "", "a blob");
        question.place = Place::Url(url);
        question.body = bytes;
        question.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        self.conversation.ask(question).await.map(drop)
    }

    async fn manifest(&mut self, name: &str, text: Bytes) -> Result<(), RegistryFailure> {
        let path = format!("manifests/{name}");
        let mut question = Question::new(Method::PUT, &path, format!("manifest {name}"));
        question.body = text;
        let kind = HeaderValue::from_static("application/vnd.oci.image.manifest.v1+json");
        question.headers.insert(CONTENT_TYPE, kind);
        self.conversation.ask(question).await.map(drop)
    }
}
