//! Where a model answers, and the key to it.

use std::fmt;
use std::net::IpAddr;

use ureq::http::Uri;

use super::error::ModelError;

/// A key. It is sent to its endpoint and appears nowhere else: not in `Debug`, not in a transcript, not in an error.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    /// Takes a key as it stands in a variable or a file, where a final newline is common. `None` when nothing is left.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

/// A model at an address.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    base_url: String,
    model: String,
    api_key: Option<Secret>,
}

impl Endpoint {
    /// `base_url` is used as given, but for these: a final `/` or `/chat/completions` is dropped, and `/v1` is added
    /// when there is no path at all.
    ///
    /// # Errors
    /// [`ModelError::Url`] when it is not `http://` or `https://`, or carries a user name, a query or a fragment.
    pub(crate) fn new(base_url: &str, model: &str, api_key: Option<Secret>) -> Result<Self, ModelError> {
        Ok(Self { base_url: normalized(base_url)?, model: model.to_owned(), api_key })
    }

    /// Without a final `/`.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The model's name at the endpoint; untrusted text when it was found there.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    pub(super) fn api_key(&self) -> Option<&Secret> {
        self.api_key.as_ref()
    }
}

/// See [`Endpoint::new`].
pub(super) fn normalized(base_url: &str) -> Result<String, ModelError> {
    let bad = |reason| ModelError::Url { url: base_url.to_owned(), reason };
    let url = base_url.trim();
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(bad("it has to begin with http:// or https://"));
    }
    if url.contains(['?', '#']) {
        return Err(bad("it must have no query and no fragment"));
    }
    let uri: Uri = url.parse().map_err(|_| bad("it is not a URL"))?;
    // A password in the URL would be shown wherever the URL is shown; the text above is not shown for that reason.
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        let reason = "a user name or password does not belong in it; give the key as $ZWINGER_API_KEY";
        return Err(ModelError::Url { url: "(not shown)".to_owned(), reason });
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(bad("it names no host"));
    }
    let url = url.trim_end_matches('/');
    let url = url.strip_suffix("/chat/completions").unwrap_or(url).trim_end_matches('/');
    let bare = matches!(uri.path(), "" | "/" | "/chat/completions");
    Ok(if bare { format!("{url}/v1") } else { url.to_owned() })
}

/// This machine: no proxy stands between.
pub(super) fn is_loopback(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_used_as_given_and_v1_is_added_to_a_bare_one() {
        for (given, used) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1"),
            (" http://127.0.0.1:8080/v1/ ", "http://127.0.0.1:8080/v1"),
            ("https://example.org/v1", "https://example.org/v1"),
            ("https://example.org/v1/chat/completions", "https://example.org/v1"),
            ("https://example.org/openai/v2//", "https://example.org/openai/v2"),
            ("http://[::1]:1234", "http://[::1]:1234/v1"),
        ] {
            assert_eq!(normalized(given).unwrap(), used, "{given}");
        }
    }

    #[test]
    fn other_urls_are_refused_with_the_reason() {
        for (given, reason) in [
            ("localhost:8080", "http://"),
            ("file:///etc/passwd", "http://"),
            ("", "http://"),
            ("http://", "not a URL"),
            ("http://a b/", "not a URL"),
            ("http://h/v1?key=1", "no query"),
            ("http://h/v1#x", "no query"),
        ] {
            let error = normalized(given).unwrap_err().to_string();
            assert!(error.contains(reason), "{given}: {error}");
        }
        let error = normalized("https://me:hunter2@h/v1").unwrap_err().to_string();
        assert!(error.contains("$ZWINGER_API_KEY") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn loopback_is_recognized() {
        for (url, here) in [
            ("http://127.0.0.1:8080/v1", true),
            ("http://127.8.8.8/v1", true),
            ("http://[::1]:80/v1", true),
            ("http://localhost/v1", true),
            ("http://localhost.example.org/v1", false),
            ("http://10.0.0.1/v1", false),
        ] {
            assert_eq!(is_loopback(url), here, "{url}");
        }
    }

    #[test]
    fn a_secret_is_trimmed_and_never_shown() {
        let secret = Secret::new(" sk-1234\n").unwrap();
        assert_eq!(secret.reveal(), "sk-1234");
        let endpoint = Endpoint::new("http://h", "m", Some(secret)).unwrap();
        let shown = format!("{endpoint:?}");
        assert!(shown.contains("[secret]") && !shown.contains("1234"), "{shown}");
        assert!(Secret::new(" \n").is_none());
    }
}
