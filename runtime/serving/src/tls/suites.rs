//! Maps Go's names of versions, cipher suites and key exchanges to those of rustls.

use rustls::{
    CipherSuite, SupportedCipherSuite, SupportedProtocolVersion,
    crypto::{CryptoProvider, SupportedKxGroup, ring},
    version::{TLS12, TLS13},
};

use crate::{error::ServingError, options::TlsOptions};

/// The cryptography and the versions of the options.
///
/// # Errors
/// A setting that rustls does not support, with those that it supports.
pub(super) fn provider(
    options: &TlsOptions,
) -> Result<(CryptoProvider, Vec<&'static SupportedProtocolVersion>), ServingError> {
    let mut provider = ring::default_provider();
    let mut versions = versions(options.min_version.as_deref())?;
    if !options.cipher_suites.is_empty() {
        provider.cipher_suites = cipher_suites(&provider.cipher_suites, &options.cipher_suites)?;
    }
    if !provider.cipher_suites.iter().any(is_tls12) {
        versions.retain(|version| **version != TLS12);
    }
    if !options.curve_preferences.is_empty() {
        provider.kx_groups = key_exchanges(&provider.kx_groups, &options.curve_preferences)?;
    }
    Ok((provider, versions))
}

fn versions(min: Option<&str>) -> Result<Vec<&'static SupportedProtocolVersion>, ServingError> {
    match min {
        None | Some("VersionTLS12") => Ok(vec![&TLS13, &TLS12]),
        Some("VersionTLS13") => Ok(vec![&TLS13]),
        Some(old @ ("VersionTLS10" | "VersionTLS11")) => Err(ServingError::Tls(format!(
            "--tls-min-version {old}: rustls does not support TLS 1.0 and 1.1; give VersionTLS12 or VersionTLS13"
        ))),
        Some(other) => Err(ServingError::Tls(format!(
            "--tls-min-version {other:?}: no such version; give VersionTLS12 or VersionTLS13"
        ))),
    }
}

fn is_tls12(suite: &SupportedCipherSuite) -> bool {
    suite.tls13().is_none()
}

/// IANA's name; rustls adds the version to the names of TLS 1.3.
fn name(suite: CipherSuite) -> String {
    suite.as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1)
}

/// The selected suites in the order of rustls, the best first. The suites of TLS 1.3 always stay,
/// because Go cannot disable them either.
fn cipher_suites(have: &[SupportedCipherSuite], wanted: &[String]) -> Result<Vec<SupportedCipherSuite>, ServingError> {
    let asked = |suite: &SupportedCipherSuite, wish: &str| {
        let name = name(suite.suite());
        // Go's older names of these two have no hash at the end.
        name == wish || (wish.ends_with("_CHACHA20_POLY1305") && name == format!("{wish}_SHA256"))
    };
    if let Some(missing) = wanted.iter().find(|wish| !have.iter().any(|suite| asked(suite, wish))) {
        let have: Vec<_> = have.iter().map(|suite| name(suite.suite())).collect();
        return Err(ServingError::Tls(format!(
            "--tls-cipher-suites {missing:?}: rustls does not have it (none without forward secrecy and none with CBC); it has {}",
            have.join(", ")
        )));
    }
    let kept = have.iter().filter(|suite| !is_tls12(suite) || wanted.iter().any(|wish| asked(suite, wish)));
    Ok(kept.copied().collect())
}

fn key_exchanges(
    have: &[&'static dyn SupportedKxGroup],
    wanted: &[u16],
) -> Result<Vec<&'static dyn SupportedKxGroup>, ServingError> {
    let find = |number: &u16| {
        have.iter().find(|group| u16::from(group.name()) == *number).copied().ok_or_else(|| {
            let have = have.iter().map(|group| format!("{} ({:?})", u16::from(group.name()), group.name()));
            ServingError::Tls(format!(
                "--tls-curve-preferences {number}: rustls does not have it with ring; it has {}",
                have.collect::<Vec<_>>().join(", ")
            ))
        })
    };
    wanted.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{name, provider};
    use crate::options::{SecureServingOptions, TlsOptions};

    fn options() -> TlsOptions {
        SecureServingOptions::endpoints().tls
    }

    #[test]
    fn the_default_is_both_versions_and_all_suites() {
        let (provider, versions) = provider(&options()).unwrap();
        assert_eq!(versions.len(), 2);
        assert_eq!(provider.cipher_suites.len(), 9);
    }

    #[test]
    fn a_list_of_suites_limits_those_of_tls_1_2_only() {
        let suites = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"];
        let tls = TlsOptions { cipher_suites: suites.map(str::to_owned).to_vec(), ..options() };
        let (provider, versions) = provider(&tls).unwrap();
        assert_eq!(versions.len(), 2);
        let old: Vec<_> = provider.cipher_suites.iter().filter(|suite| super::is_tls12(suite)).collect();
        let old: Vec<_> = old.iter().map(|suite| name(suite.suite())).collect();
        assert_eq!(old, [suites[0].to_owned(), format!("{}_SHA256", suites[1])]);
        assert_eq!(provider.cipher_suites.len() - old.len(), 3);
    }

    #[test]
    fn a_list_without_a_suite_of_tls_1_2_turns_that_version_off() {
        let tls = TlsOptions { cipher_suites: vec!["TLS_AES_128_GCM_SHA256".to_owned()], ..options() };
        assert_eq!(provider(&tls).unwrap().1, [&rustls::version::TLS13]);
    }

    #[rstest]
    #[case::a_version_that_is_too_old(TlsOptions { min_version: Some("VersionTLS11".to_owned()), ..options() }, "does not support TLS 1.0 and 1.1")]
    #[case::a_version_that_is_none(TlsOptions { min_version: Some("1.2".to_owned()), ..options() }, "no such version")]
    #[case::a_suite_of_go(TlsOptions { cipher_suites: vec!["TLS_RSA_WITH_AES_128_CBC_SHA".to_owned()], ..options() }, "rustls does not have it")]
    #[case::a_curve_that_ring_lacks(TlsOptions { curve_preferences: vec![29, 25], ..options() }, "--tls-curve-preferences 25: rustls")]
    fn a_setting_that_rustls_does_not_support_is_an_error(#[case] tls: TlsOptions, #[case] said: &str) {
        let error = provider(&tls).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }

    #[test]
    fn key_exchanges_have_the_configured_order() {
        let (provider, _) = provider(&TlsOptions { curve_preferences: vec![24, 29], ..options() }).unwrap();
        let numbers: Vec<_> = provider.kx_groups.iter().map(|group| u16::from(group.name())).collect();
        assert_eq!(numbers, [24, 29]);
    }
}
