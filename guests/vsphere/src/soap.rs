//! SOAP 1.1 as vCenter Server speaks it: the envelope of a request, and the meaning of a fault.

use skysail_guest_sdk::{
    Error, Result,
    http::{Api, Request, Response},
    text::cut,
    xml::reader::Reader,
};

/// The version of the API whose types this provider reads: vCenter Server answers in the version
/// that the client names, and in that of 2009 if the client names none.
const ACTION: &str = "urn:vim25/6.5";

/// Longest part of a fault's text that is quoted, in bytes.
const TEXT_BYTES_MAX: usize = 300;

/// The part of an answer in which the element of the method's response begins, in bytes.
const HEAD_BYTES_MAX: usize = 4_000;

/// The endpoint of one vCenter.
#[derive(Debug)]
pub(crate) struct Soap {
    api: Api,
}

/// A fault, of a request or of one property.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The type: `NoPermission`.
    pub(crate) kind: String,
    /// What vCenter says to people; often empty.
    pub(crate) text: String,
    /// The privilege that the account lacks.
    pub(crate) privilege: String,
}

impl Soap {
    /// Makes the client; sends no request.
    pub(crate) fn new(origin: &str, credential: &str) -> Self {
        Self { api: Api::new(origin).credential(credential).judged_by(judge) }
    }

    /// A request with this body: the element of the method.
    pub(crate) fn request(&self, body: &str) -> Request {
        Self::request_of(&self.api, body)
    }

    fn request_of(api: &Api, body: &str) -> Request {
        let envelope = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
             xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"><soapenv:Body>{body}</soapenv:Body></soapenv:Envelope>"
        );
        let request = api.post(&["sdk"]).header("soapaction", ACTION);
        request.body("text/xml; charset=utf-8", envelope.into_bytes())
    }

    /// Calls a method.
    ///
    /// # Errors
    ///
    /// Those of [`Fault::error`] and of the transport.
    pub(crate) fn call(&self, body: &str) -> Result<Response> {
        self.request(body).send()
    }

    /// Calls the method that gives the next page of a list.
    ///
    /// # Errors
    ///
    /// Those of [`Fault::error_of_next_page`] and of the transport.
    pub(crate) fn call_for_next_page(&self, body: &str) -> Result<Response> {
        Self::request_of(&self.api.clone().judged_by(judge_next_page), body).send()
    }
}

/// The answer of a method, up to the element of the method's response.
///
/// # Errors
///
/// `internal` for a body that is no envelope, which [`judge`] has refused.
pub(crate) fn answer(body: &[u8]) -> Result<Reader<'_>> {
    let mut reader = Reader::new(body)?;
    if reader.enter(&["Envelope", "Body"])? && reader.child()?.is_some_and(|start| start.name.ends_with("Response")) {
        return Ok(reader);
    }
    Err(Error::Internal("unexpected XML: neither the response of a method nor a fault".to_owned()))
}

/// The error of a response; none where it is no error.
pub(crate) fn judge(response: &Response) -> Option<Error> {
    judged(response, Fault::error)
}

fn judge_next_page(response: &Response) -> Option<Error> {
    judged(response, Fault::error_of_next_page)
}

/// A fault has the status 500; with a good one it is a fault, too. Everything else is the answer of
/// a gateway.
fn judged(response: &Response, error: fn(&Fault, String) -> Error) -> Option<Error> {
    let Response { status, body, .. } = response;
    let succeeded = *status < 300;
    if succeeded && begins_as_answer(body) {
        return None;
    }
    if let (true, Ok(Some(fault))) = (succeeded || *status == 500, fault(body)) {
        return Some(error(&fault, response.message(&fault.to_string())));
    }
    let error = response.clone().check().err();
    let error = error.unwrap_or_else(|| Error::Unavailable(response.message("neither an answer nor a fault")));
    let remedy = match error {
        Error::Denied(_) => "correct the account in the credential, or the proxy before vCenter Server",
        _ => "the answer is not that of vCenter Server: correct server and port, or the proxy before vCenter Server",
    };
    let message = format!("{}; {remedy}", error.message());
    Some(error.with_message(message))
}

/// Whether a body begins as that of an answer: the content may have megabytes.
fn begins_as_answer(body: &[u8]) -> bool {
    let head = body.get(..HEAD_BYTES_MAX).unwrap_or(body);
    head.utf8_chunks().next().is_some_and(|chunk| answer(chunk.valid().as_bytes()).is_ok())
}

fn fault(body: &[u8]) -> Result<Option<Fault>> {
    let mut reader = Reader::new(body)?;
    if !reader.enter(&["Envelope", "Body", "Fault"])? {
        return Ok(None);
    }
    let mut fault = Fault::default();
    while let Some(start) = reader.child()? {
        match start.name {
            "faultstring" => fault.text = cut(&reader.text()?, TEXT_BYTES_MAX),
            "detail" => {
                while let Some(detail) = reader.child()? {
                    let kind = detail.prefixed_attribute("type");
                    let kind = kind.as_deref().unwrap_or_else(|| detail.name.trim_end_matches("Fault"));
                    fault.read(kind, &mut reader)?;
                }
            }
            _ => reader.skip()?,
        }
    }
    Ok(Some(fault))
}

impl Fault {
    /// Reads the element of a fault, whose start was read.
    pub(crate) fn read(&mut self, kind: &str, reader: &mut Reader<'_>) -> Result<()> {
        kind.rsplit(':').next().unwrap_or_default().clone_into(&mut self.kind);
        while let Some(start) = reader.child()? {
            match start.name {
                "privilegeId" => self.privilege = cut(&reader.text()?, TEXT_BYTES_MAX),
                _ => reader.skip()?,
            }
        }
        Ok(())
    }

    /// The host's reaction to this fault. None means that a machine does not exist: an object that
    /// a request names may be a folder or a datacenter.
    pub(crate) fn error(&self, message: String) -> Error {
        match self.kind.as_str() {
            // The host has logged in again and repeated the request once.
            "NotAuthenticated" | "InvalidLogin" => Error::Denied(format!(
                "{message}; correct name and password of the account in the credential, and unlock the account"
            )),
            "PasswordExpired" => Error::Denied(format!(
                "{message}; give the account a new password, and write the password into the credential"
            )),
            "RestrictedVersion" => Error::Denied(format!("{message}; give vCenter Server a license for this API")),
            "NoPermission" => Error::Denied(format!(
                "{message}; give the account the role Read-only on the nodes' datacenters, with \"Propagate to \
                 children\""
            )),
            "InvalidLocale" => Error::Denied(message),
            "InvalidArgument" | "InvalidProperty" | "InvalidRequest" | "InvalidType" | "MethodNotFound"
            | "NotSupported" => Error::Internal(format!("{message}; report the fault to the author of the provider")),
            _ => Error::Unavailable(message),
        }
    }

    /// The host's reaction to this fault of the request for the next page of a list. The session
    /// that read the page before knows the token, and the host may have begun another session.
    fn error_of_next_page(&self, message: String) -> Error {
        match self.kind.as_str() {
            "InvalidArgument" | "InvalidProperty" => Error::Unavailable(format!(
                "{message}: the session with the list has ended between two pages; the next call reads the list again"
            )),
            // A fault of vCenter Server 7.0.3 to 8.0.2: github.com/vmware/govmomi/issues/3455.
            "NoPermission" => Error::Denied(format!(
                "{message}: vCenter Server 7.0.3 to 8.0.2 continues a list only for accounts with a role on the root \
                 folder; give the account the role Read-only there, too, where it need not propagate"
            )),
            _ => self.error(message),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, text, privilege } = self;
        let kind = if kind.is_empty() { "fault" } else { kind };
        write!(f, "{kind}")?;
        if !privilege.is_empty() {
            write!(f, " (privilege {privilege})")?;
        }
        if text.is_empty() { Ok(()) } else { write!(f, ": {}", text.trim_end_matches('.')) }
    }
}

#[cfg(test)]
mod tests {
    use skysail_guest_sdk::Error;

    use super::{Fault, answer, begins_as_answer, fault};

    /// An answer of govmomi's simulator.
    const NOT_AUTHENTICATED: &[u8] = include_bytes!("testdata/not-authenticated.xml");

    #[test]
    fn a_fault_has_its_type_its_text_and_the_missing_privilege() {
        let fault = fault(NOT_AUTHENTICATED).unwrap().unwrap();
        assert_eq!((fault.kind.as_str(), fault.privilege.as_str()), ("NotAuthenticated", "System.View"));
        assert_eq!(fault.to_string(), "NotAuthenticated (privilege System.View)");
        assert!(matches!(fault.error(String::new()), Error::Denied(_)));
    }

    #[test]
    fn each_fault_has_the_reaction_that_helps_and_none_deletes_a_node() {
        let error = |kind: &str| Fault { kind: kind.to_owned(), ..Fault::default() }.error(kind.to_owned());
        assert!(matches!(error("InvalidLogin"), Error::Denied(_)));
        assert!(matches!(error("NoPermission"), Error::Denied(text) if text.contains("Read-only")));
        assert!(matches!(error("ManagedObjectNotFound"), Error::Unavailable(_)));
        assert!(matches!(error("InvalidProperty"), Error::Internal(_)));
        assert!(matches!(error("HostCommunication"), Error::Unavailable(_)));
        assert!(matches!(error(""), Error::Unavailable(_)));
    }

    /// `internal` counts against a release of the component, which then is rolled back.
    #[test]
    fn a_page_that_the_next_session_does_not_know_is_read_again_and_is_not_a_fault_of_the_release() {
        let error =
            |kind: &str| Fault { kind: kind.to_owned(), ..Fault::default() }.error_of_next_page(kind.to_owned());
        for kind in ["InvalidArgument", "InvalidProperty"] {
            assert!(matches!(error(kind), Error::Unavailable(text) if text.contains("reads the list again")), "{kind}");
        }
        assert!(matches!(error("NoPermission"), Error::Denied(text) if text.contains("root folder")));
        assert!(matches!(error("InvalidLogin"), Error::Denied(_)));
    }

    #[test]
    fn the_beginning_of_an_answer_shows_that_it_is_one() {
        let of = |text: &str| begins_as_answer(format!("<Envelope><Body><XResponse><a>{text}").as_bytes());
        assert!(of("") && of(&"é".repeat(10_000)) && of(&"x".repeat(10_000)));
        assert!(!begins_as_answer(NOT_AUTHENTICATED) && !begins_as_answer(b"\xff") && !begins_as_answer(b""));
    }

    #[test]
    fn a_body_that_is_no_envelope_is_no_answer() {
        for body in ["", "<html><body>Service Unavailable</body></html>", "<Envelope><Body/></Envelope>"] {
            assert!(matches!(answer(body.as_bytes()), Err(Error::Internal(_))), "{body}");
            assert!(!matches!(fault(body.as_bytes()), Ok(Some(_))), "{body}");
        }
        assert!(answer(NOT_AUTHENTICATED).is_err(), "a fault is no answer, whatever its status is");
    }
}
