//! Texts that a configuration may hold, each refusing what it cannot be as it is read.

use core::fmt;
use core::net::SocketAddr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::pattern;

struct TextVisitor {
    expected: &'static str,
    accept: fn(&str) -> Option<String>,
}

impl Visitor<'_> for TextVisitor {
    type Value = String;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        (self.accept)(text)
            .ok_or_else(|| E::custom(format_args!("not allowed, expected {}", self.expected)))
    }
}

#[inline(never)]
fn text<'de, D: Deserializer<'de>>(from: D, visitor: TextVisitor) -> Result<String, D::Error> {
    from.deserialize_str(visitor)
}

macro_rules! text_value {
    ($(#[$doc:meta])* $name:ident, $expected:literal, $accept:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name(pub String);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                text(from, TextVisitor { expected: $expected, accept: $accept }).map(Self)
            }
        }
    };
}

text_value!(
    /// A header's name, lower-cased.
    HeaderName, "a header name (letters, digits, `-`, `_`, `.`; up to 128)", header_name
);
text_value!(
    /// An endpoint's address in its canonical spelling.
    Address, "ip:port or [ipv6]:port with a port from 1 to 65535", address
);
text_value!(
    /// An endpoint: its address, or a name that the gateway lists it under.
    Member, "ip:port, [ipv6]:port, or a name without a colon", member
);
text_value!(
    /// A name that the gateway gives: cluster, route, service, domain, consumer.
    Name, "a name of 1 to 512 characters without control characters", name
);
text_value!(
    /// The path of a URL.
    UrlPath, "a path that starts with `/`, up to 1024 visible ASCII characters", url_path
);
text_value!(
    /// What only those know who may.
    SecretText, "8 to 256 visible ASCII characters", secret
);
text_value!(
    /// The literal text before what a pattern leaves out.
    Literal, "a text of 1 to 128 bytes", literal
);
text_value!(
    /// A character class, known to be readable by [`pattern::char_class`].
    ClassText, "characters and ranges such as 0-9a-f (printable ASCII)", class_text
);

fn header_name(text: &str) -> Option<String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    ((1..=128).contains(&text.len()) && text.bytes().all(token)).then(|| text.to_ascii_lowercase())
}

fn address(text: &str) -> Option<String> {
    let address: SocketAddr = text.parse().ok()?;
    let usable = address.port() != 0 && !address.ip().is_unspecified() && !text.contains('%');
    usable.then(|| address.to_string())
}

fn member(text: &str) -> Option<String> {
    if text.contains(':') {
        address(text)
    } else {
        name(text)
    }
}

fn name(text: &str) -> Option<String> {
    let fits = (1..=512).contains(&text.len()) && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

fn url_path(text: &str) -> Option<String> {
    let visible = text.len() <= 1024 && text.bytes().all(|byte| byte.is_ascii_graphic());
    (visible && text.starts_with('/')).then(|| text.to_owned())
}

fn secret(text: &str) -> Option<String> {
    let fits = (8..=256).contains(&text.len());
    (fits && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| text.to_owned())
}

fn literal(text: &str) -> Option<String> {
    (1..=128).contains(&text.len()).then(|| text.to_owned())
}

fn class_text(text: &str) -> Option<String> {
    pattern::char_class(text).map(|_| text.to_owned())
}
