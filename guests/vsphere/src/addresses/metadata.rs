//! `guestinfo.metadata`: the network configuration that cloud-init was given.

use std::net::IpAddr;

/// The longest metadata that is read, in bytes: one machine has some kilobytes.
const BYTES_MAX: usize = 64 << 10;

/// The addresses in the metadata, in their order; none where it is not encoded as base64.
///
/// The text is YAML with netplan inside. A list of all addresses in it is enough: those of gateways
/// and name servers are no addresses of the machine, and only the order of its own ones matters.
pub(super) fn addresses(metadata: &str, encoding: &str) -> Vec<IpAddr> {
    if encoding != "base64" || metadata.len() > BYTES_MAX {
        return Vec::new();
    }
    let Some(text) = decoded(metadata) else { return Vec::new() };
    let mut found: Vec<IpAddr> = in_text(&text);
    // `network.encoding: base64`: the network is a text in the text.
    for word in text.split([' ', '\t', '\n', '\r', '"', '\'', ',']).filter(|word| word.len() >= 32) {
        found.extend(decoded(word).iter().flat_map(|inner| in_text(inner)));
    }
    found
}

fn in_text(text: &str) -> Vec<IpAddr> {
    let words = text.split(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '/')));
    words.filter_map(|word| word.split('/').next()?.parse().ok()).collect()
}

/// The text behind base64; none for other bytes, such as those of gzip.
fn decoded(text: &str) -> Option<String> {
    let digits = text.trim().trim_end_matches('=');
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for digit in digits.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            let [.., byte] = (bits >> held).to_be_bytes();
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::{addresses, decoded};

    /// `network:\n  ethernets:\n    eth0:\n      addresses: ["10.0.0.9/24", fd00::9/64]\n`.
    const PLAIN: &str =
        "bmV0d29yazoKICBldGhlcm5ldHM6CiAgICBldGgwOgogICAgICBhZGRyZXNzZXM6IFsiMTAuMC4wLjkvMjQiLCBmZDAwOjo5LzY0XQo=";
    /// `network: "`, the above, `"\nnetwork.encoding: base64\n`.
    const NESTED: &str = "bmV0d29yazogImJtVjBkMjl5YXpvS0lDQmxkR2hsY201bGRITTZDaUFnSUNCbGRHZ3dPZ29nSUNBZ0lDQmhaR1J5WlhOelpYTTZJRnNpTVRBdU1DNHdMamt2TWpRaUxDQm1aREF3T2pvNUx6WTBYUW89IgpuZXR3b3JrLmVuY29kaW5nOiBiYXNlNjQK";

    #[test]
    fn addresses_are_read_from_metadata_and_from_a_network_encoded_in_it() {
        for metadata in [PLAIN, NESTED] {
            let found: Vec<_> = addresses(metadata, "base64").iter().map(ToString::to_string).collect();
            assert_eq!(found, ["10.0.0.9", "fd00::9"]);
        }
    }

    #[test]
    fn metadata_that_is_no_text_has_no_addresses() {
        assert_eq!(addresses(PLAIN, "gzip+base64"), [] as [std::net::IpAddr; 0]);
        assert_eq!(addresses("10.0.0.9", "base64"), [] as [std::net::IpAddr; 0]);
        assert_eq!(decoded("H4sIAAAAAAAAA/8="), None);
        assert_eq!(decoded("aGk=").as_deref(), Some("hi"));
    }
}
