//! The media type of the answer.

use super::Request;

impl Request {
    /// Asks for an answer of this media type instead of JSON, for a cloud that chooses by `Accept`.
    #[must_use]
    pub fn accept(mut self, media_type: &str) -> Self {
        self.raw.headers.retain(|(name, _)| name != "accept");
        self.header("accept", media_type)
    }
}

#[cfg(test)]
mod tests {
    use crate::http::Api;

    #[test]
    fn a_request_asks_for_one_media_type() {
        let request = Api::new("http://x").post(&[""]).accept("text/xml");
        let accepted: Vec<_> = request.raw.headers.iter().filter(|(name, _)| name == "accept").collect();
        assert_eq!(accepted, [&("accept".to_owned(), "text/xml".to_owned())]);
    }
}
