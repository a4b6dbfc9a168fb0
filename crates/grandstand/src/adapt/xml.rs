//! XML from strangers as a flat list of elements. No document type, no processing instruction, no entity but the five of XML; every
//! size has its limit. Text between elements is not kept: the formats say all they say in attributes.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};

use super::Fault;

const DEPTH_MAX: usize = 16;
const ELEMENTS_MAX: usize = 50_000;
const ATTRIBUTES_MAX: usize = 64;
const VALUE_BYTES_MAX: usize = 1_024;

pub(super) struct Element {
    /// 0 is the root.
    pub depth: usize,
    /// Without its prefix.
    pub name: String,
    attributes: Vec<(String, String)>,
}

impl Element {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The elements in the order they open.
///
/// Errors: as of the module.
pub(super) fn elements(bytes: &[u8]) -> Result<Vec<Element>, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|_| Fault::NotUtf8)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut xml = Reader::from_str(text);
    let mut elements: Vec<Element> = Vec::new();
    let mut depth = 0;
    loop {
        match xml.read_event().map_err(|fault| Fault::Xml(fault.to_string()))? {
            Event::Start(tag) => {
                open(&tag, depth, &mut elements)?;
                depth += 1;
            }
            Event::Empty(tag) => open(&tag, depth, &mut elements)?,
            Event::End(_) => depth -= 1,
            Event::Eof if depth > 0 => return Err(Fault::Xml("an element is not closed".to_owned())),
            Event::Eof => return Ok(elements),
            Event::DocType(_) => return Err(Fault::Doctype),
            Event::PI(_) => return Err(Fault::Instruction),
            Event::Decl(declared) => {
                let encoding = declared.encoding().transpose().map_err(|fault| Fault::Xml(fault.to_string()))?;
                if let Some(encoding) = encoding.filter(|name| !name.eq_ignore_ascii_case(b"utf-8")) {
                    return Err(Fault::Encoding(String::from_utf8_lossy(&encoding).into_owned()));
                }
            }
            Event::GeneralRef(reference) => {
                let name = String::from_utf8_lossy(&reference).into_owned();
                let is_known = matches!(reference.resolve_char_ref(), Ok(Some(_)));
                if !is_known && resolve_predefined_entity(&name).is_none() {
                    return Err(Fault::Entity(name));
                }
            }
            Event::Text(_) | Event::CData(_) | Event::Comment(_) => {}
        }
    }
}

fn open(tag: &BytesStart<'_>, depth: usize, elements: &mut Vec<Element>) -> Result<(), Fault> {
    if depth >= DEPTH_MAX {
        return Err(Fault::Limit("16 levels of elements"));
    }
    if elements.len() >= ELEMENTS_MAX {
        return Err(Fault::Limit("50000 elements"));
    }
    if depth == 0 && !elements.is_empty() {
        return Err(Fault::Xml("a second root element".to_owned()));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut attributes = Vec::new();
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|fault| Fault::Xml(fault.to_string()))?;
        if attributes.len() >= ATTRIBUTES_MAX {
            return Err(Fault::Limit("64 attributes of an element"));
        }
        if attribute.value.len() > VALUE_BYTES_MAX {
            return Err(Fault::Limit("1024 bytes of an attribute"));
        }
        let name = text(attribute.key.local_name().as_ref());
        let value = attribute.unescape_value().map_err(|_| Fault::Entity(text(&attribute.value)))?;
        attributes.push((name, value.into_owned()));
    }
    let name = text(tag.local_name().as_ref());
    elements.push(Element { depth, name, attributes });
    Ok(())
}
