//! The certificates of a port: generated in memory, or read from files and reloaded when these
//! change.

use std::{
    fmt,
    fs::{self, File, Permissions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    client::verify_server_name,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::{ClientHello, ParsedCertificate, ResolvesServerCert},
    sign::CertifiedKey,
};
use skysail_provider::text::with_causes;
use tokio_util::sync::CancellationToken;

use super::files::read;
use crate::{
    error::ServingError,
    limits::FILES_PERIOD,
    options::{KeyPairFiles, SniKeyPair, TlsOptions},
};

/// Names of the self-signed certificate, as upstream's.
const SELF_SIGNED_NAMES: [&str; 2] = ["localhost", "127.0.0.1"];
/// The first line of the files that this process makes. Readers of PEM skip text before the first
/// block.
const MADE_HERE: &str = "Made by Skysail, which replaces this certificate and this key if they do not belong together.";

/// The certificates of a port.
pub(crate) struct Certificates {
    provider: Arc<CryptoProvider>,
    /// The files of the default certificate; `None` if it is only in memory.
    default: Option<KeyPairFiles>,
    sni: Vec<SniKeyPair>,
    current: ArcSwap<Loaded>,
}

struct Loaded {
    default: Pair,
    sni: Vec<(Vec<String>, Pair)>,
}

struct Pair {
    key: Arc<CertifiedKey>,
    /// The content of the files, to detect a change.
    bytes: (Vec<u8>, Vec<u8>),
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("default", &self.default).field("sni", &self.sni).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files, or generates a self-signed certificate without files.
    ///
    /// # Errors
    /// A file cannot be read, or does not hold a certificate and its key.
    pub(super) fn load(options: &TlsOptions, provider: Arc<CryptoProvider>) -> Result<Self, ServingError> {
        let default = match (&options.key_pair, &options.cert_dir) {
            (Some(files), _) => Some(files.clone()),
            (None, Some(folder)) => Some(pair_in(folder, options.pair_name, &provider)?),
            (None, None) => None,
        };
        let pair = match &default {
            Some(files) => load_pair(files, &provider)?,
            None => self_signed_pair(&provider)?,
        };
        let sni = load_sni(&options.sni, &provider)?;
        let current = ArcSwap::from_pointee(Loaded { default: pair, sni });
        Ok(Self { provider, default, sni: options.sni.clone(), current })
    }

    /// Reloads the files when they change. An error is logged once, and the last valid certificates
    /// stay in use.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        if self.default.is_none() && self.sni.is_empty() {
            return;
        }
        let mut said = String::new();
        let mut period = tokio::time::interval(FILES_PERIOD);
        while stop.run_until_cancelled(period.tick()).await.is_some() {
            let certificates = Arc::clone(&self);
            // Reading can block on a slow disk or a network file system.
            let looked = tokio::task::spawn_blocking(move || certificates.reload()).await;
            let Ok(looked) = looked else { continue };
            let problem = looked.as_ref().err().map(|error| with_causes(error)).unwrap_or_default();
            match looked {
                Ok(true) => {
                    tracing::info!("the serving certificate was reloaded: new connections use the new certificate")
                }
                Err(_) if problem != said => {
                    tracing::error!("the new serving certificate is refused, the previous one stays in use: {problem}");
                }
                Ok(false) | Err(_) => {}
            }
            said = problem;
        }
    }

    /// Checks the files once; returns whether another certificate is served now.
    pub(super) fn reload(&self) -> Result<bool, ServingError> {
        let current = self.current.load_full();
        let changed = |files: &KeyPairFiles, pair: &Pair| {
            Ok::<_, ServingError>((read(&files.certificate)?, read(&files.key)?) != pair.bytes)
        };
        let mut any = match &self.default {
            Some(files) => changed(files, &current.default)?,
            None => false,
        };
        for (sni, (_, pair)) in self.sni.iter().zip(&current.sni) {
            any |= changed(&sni.files, pair)?;
        }
        if !any {
            return Ok(false);
        }
        let default = match &self.default {
            Some(files) => load_pair(files, &self.provider)?,
            None => Pair { key: Arc::clone(&current.default.key), bytes: current.default.bytes.clone() },
        };
        let sni = load_sni(&self.sni, &self.provider)?;
        self.current.store(Arc::new(Loaded { default, sni }));
        Ok(true)
    }

    fn choose(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let current = self.current.load();
        // As upstream: a certificate that is configured for exactly the name wins over one for a
        // wildcard; of several the first.
        let is_exact = |(names, _): &&(Vec<String>, Pair)| {
            name.is_some_and(|name| names.iter().any(|pattern| pattern.eq_ignore_ascii_case(name)))
        };
        let fits = |(names, pair): &&(Vec<String>, Pair)| name.is_some_and(|name| is_for(name, names, &pair.key));
        let found = current.sni.iter().find(is_exact).or_else(|| current.sni.iter().find(fits));
        let pair = found.map_or(&current.default, |(_, pair)| pair);
        Arc::clone(&pair.key)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.choose(hello.server_name()))
    }
}

/// Whether a certificate is for a name: by its configured patterns, otherwise by its own names.
fn is_for(name: &str, patterns: &[String], key: &CertifiedKey) -> bool {
    if !patterns.is_empty() {
        return patterns.iter().any(|pattern| matches(pattern, name));
    }
    let certificate = key.end_entity_cert().ok().and_then(|der| ParsedCertificate::try_from(der).ok());
    let name = ServerName::try_from(name).ok();
    certificate.zip(name).is_some_and(|(certificate, name)| verify_server_name(&certificate, &name).is_ok())
}

/// `*.` stands for one label.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(rest) => name.split_once('.').is_some_and(|(_, parent)| parent.eq_ignore_ascii_case(rest)),
        None => pattern.eq_ignore_ascii_case(name),
    }
}

fn load_sni(sni: &[SniKeyPair], provider: &CryptoProvider) -> Result<Vec<(Vec<String>, Pair)>, ServingError> {
    sni.iter().map(|sni| Ok((sni.names.clone(), load_pair(&sni.files, provider)?))).collect()
}

fn load_pair(files: &KeyPairFiles, provider: &CryptoProvider) -> Result<Pair, ServingError> {
    let bytes = (read(&files.certificate)?, read(&files.key)?);
    let wrong = |path: &Path, problem: String| ServingError::Content { path: path.to_owned(), problem };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes.0).collect();
    let chain = chain.map_err(|error| {
        let problem = format!("the PEM cannot be parsed ({error}); write at least one block BEGIN CERTIFICATE");
        wrong(&files.certificate, problem)
    })?;
    let key = PrivateKeyDer::from_pem_slice(&bytes.1)
        .map_err(|error| wrong(&files.key, format!("no private key in PEM: {error}")))?;
    let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
        wrong(&files.certificate, format!("no certificate for the key in {}: {error}", files.key.display()))
    })?;
    Ok(Pair { key: Arc::new(key), bytes })
}

/// The certificate and its key, in PEM.
fn self_signed() -> Result<(String, String), ServingError> {
    let made = rcgen::generate_simple_self_signed(SELF_SIGNED_NAMES.map(str::to_owned));
    let made = made.map_err(|error| ServingError::Tls(format!("cannot generate a certificate: {error}")))?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

fn self_signed_pair(provider: &CryptoProvider) -> Result<Pair, ServingError> {
    let (certificate, key) = self_signed()?;
    let unusable = |problem: String| ServingError::Tls(format!("cannot use the self-signed certificate: {problem}"));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let chain = chain.map_err(|error| unusable(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| unusable(error.to_string()))?;
    let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| unusable(error.to_string()))?;
    Ok(Pair { key: Arc::new(key), bytes: (Vec::new(), Vec::new()) })
}

/// The files in `--cert-dir`; created if neither of the two exists, as upstream does.
///
/// A crash may leave one file without the other, or two that do not belong together. Where this
/// process made what there is, it makes both again; a file of the operator is never replaced.
fn pair_in(folder: &Path, name: &str, provider: &CryptoProvider) -> Result<KeyPairFiles, ServingError> {
    let file = |end: &str| folder.join(format!("{name}.{end}"));
    let files = KeyPairFiles { certificate: file("crt"), key: file("key") };
    if ![&files.certificate, &files.key].into_iter().all(|path| may_be_made(path)) {
        return Ok(files);
    }
    match load_pair(&files, provider) {
        Ok(_) => return Ok(files),
        Err(error) if !is_absent(&files.certificate) || !is_absent(&files.key) => {
            let problem = with_causes(&error);
            tracing::warn!(
                "the self-signed certificate is made again, because a crash left only a part of its files: {problem}"
            );
        }
        Err(_) => {}
    }
    fs::create_dir_all(folder).map_err(|source| ServingError::File { path: folder.to_owned(), source })?;
    let (certificate, key) = self_signed()?;
    for (path, pem, mode) in [(&files.key, key, 0o600), (&files.certificate, certificate, 0o644)] {
        write(folder, path, &format!("{MADE_HERE}\n{pem}"), mode)
            .map_err(|source| ServingError::File { path: path.clone(), source })?;
    }
    Ok(files)
}

/// Whether the file is absent, or this process made it.
fn may_be_made(path: &Path) -> bool {
    is_absent(path) || read(path).is_ok_and(|bytes| bytes.starts_with(MADE_HERE.as_bytes()))
}

/// A link without a target is not absent.
fn is_absent(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Replaces a file: it has the whole text, or stays as it was, also in a crash.
fn write(folder: &Path, path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut new = tempfile::Builder::new().permissions(Permissions::from_mode(mode)).tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(path)?;
    // The name is on disk when its folder is.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

    use rustls::crypto::ring::default_provider;

    use super::{Certificates, with_causes};
    use crate::options::{KeyPairFiles, SecureServingOptions, SniKeyPair, TlsOptions};

    fn pair(folder: &Path, name: &str) -> KeyPairFiles {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let files =
            KeyPairFiles { certificate: folder.join(format!("{name}.crt")), key: folder.join(format!("{name}.key")) };
        fs::write(&files.certificate, made.cert.pem()).unwrap();
        fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        files
    }

    fn load(tls: &TlsOptions) -> Result<Certificates, String> {
        Certificates::load(tls, Arc::new(default_provider())).map_err(|error| with_causes(&error))
    }

    fn options() -> TlsOptions {
        SecureServingOptions::endpoints().tls
    }

    #[test]
    fn a_pair_is_created_in_an_empty_cert_dir_and_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let tls = TlsOptions { cert_dir: Some(folder.path().join("pki")), ..options() };
        let first = load(&tls).unwrap().choose(None);
        let key = folder.path().join("pki/cloud-controller-manager.key");
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load(&tls).unwrap().choose(None).cert, first.cert);
        assert_eq!(fs::read_dir(folder.path().join("pki")).unwrap().count(), 2, "no incomplete file is left");
    }

    /// Regression: such a crash made every later start fail.
    #[test]
    fn a_crash_while_a_pair_is_created_leaves_files_that_the_next_start_makes_again() {
        let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let of = |folder: &Path| TlsOptions { cert_dir: Some(folder.to_owned()), ..options() };
        let file = |end: &str| folder.path().join(format!("cloud-controller-manager.{end}"));
        let start = || load(&of(folder.path())).unwrap().choose(None);
        let mut before = start();
        let mut is_made_again = |what: &str| {
            let now = start();
            assert_ne!(now.cert, before.cert, "{what}");
            assert_eq!(start().cert, now.cert, "{what}");
            before = now;
        };
        for absent in ["crt", "key"] {
            fs::remove_file(file(absent)).unwrap();
            is_made_again(absent);
        }
        load(&of(other.path())).unwrap();
        fs::copy(other.path().join("cloud-controller-manager.crt"), file("crt")).unwrap();
        is_made_again("the certificate of another key");
    }

    #[test]
    fn a_file_of_the_operator_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let tls = TlsOptions { cert_dir: Some(folder.path().to_owned()), ..options() };
        let file = |end: &str| folder.path().join(format!("cloud-controller-manager.{end}"));
        let own = pair(folder.path(), "own");
        for (from, to, remaining) in [(&own.certificate, file("crt"), "key"), (&own.key, file("key"), "crt")] {
            fs::copy(from, &to).unwrap();
            assert!(load(&tls).unwrap_err().contains(&format!("cloud-controller-manager.{remaining}")));
            assert_eq!(fs::read(&to).unwrap(), fs::read(from).unwrap());
            fs::remove_file(to).unwrap();
        }
        // The operator has replaced only the key yet.
        load(&tls).unwrap();
        fs::copy(&own.key, file("key")).unwrap();
        assert!(load(&tls).unwrap_err().contains("no certificate for the key"));
        assert_eq!(fs::read(file("key")).unwrap(), fs::read(&own.key).unwrap());
    }

    #[test]
    fn changed_files_are_reloaded_and_invalid_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let files = pair(folder.path(), "a.example");
        let certificates = load(&TlsOptions { key_pair: Some(files.clone()), ..options() }).unwrap();
        assert!(!certificates.reload().unwrap());
        let old = certificates.choose(None);
        fs::write(&files.certificate, "half a certif").unwrap();
        let problem = with_causes(&certificates.reload().unwrap_err());
        assert!(problem.contains("a.example.crt: no certificate for the key"), "{problem}");
        assert_eq!(certificates.choose(None).cert, old.cert);
        pair(folder.path(), "a.example");
        assert!(certificates.reload().unwrap());
        assert_ne!(certificates.choose(None).cert, old.cert);
    }

    #[test]
    fn a_key_of_another_certificate_is_refused_at_start() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (pair(folder.path(), "a"), pair(folder.path(), "b"));
        let files = KeyPairFiles { certificate: a.certificate, key: b.key };
        let problem = load(&TlsOptions { key_pair: Some(files), ..options() }).unwrap_err();
        assert!(problem.contains("no certificate for the key"), "{problem}");
    }

    #[test]
    fn the_server_name_of_the_handshake_selects_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let own_names = SniKeyPair { files: pair(folder.path(), "own.example"), names: Vec::new() };
        let given = SniKeyPair { files: pair(folder.path(), "x"), names: vec!["*.given.example".to_owned()] };
        let certificates = load(&TlsOptions { sni: vec![own_names, given], ..options() }).unwrap();
        let default = certificates.choose(None).cert.clone();
        let chosen = |name| certificates.choose(Some(name)).cert != default;
        assert!(chosen("own.example") && chosen("a.given.example"));
        assert!(!chosen("given.example") && !chosen("a.b.given.example") && !chosen("x"));
    }

    #[test]
    fn a_certificate_for_exactly_the_name_wins_over_an_earlier_one_for_a_wildcard() {
        let folder = tempfile::tempdir().unwrap();
        let given =
            |file: &str, name: &str| SniKeyPair { files: pair(folder.path(), file), names: vec![name.to_owned()] };
        let sni = vec![given("x", "*.example.com"), given("y", "a.example.com")];
        let certificates = load(&TlsOptions { sni, ..options() }).unwrap();
        let [exact, wildcard] = ["A.example.com", "b.example.com"].map(|name| certificates.choose(Some(name)));
        assert_ne!(exact.cert, wildcard.cert);
    }
}
