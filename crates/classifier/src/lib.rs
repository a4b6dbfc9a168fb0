//! The built-in classifier: an operator's word lists, links, and in strict rooms a list of English words that is kept by others.
//!
//! Pure and quick: one call, one ruling, no I/O and no clock, so that it can be asked in the owner's own thread. It reads text; it
//! understands none. What the lists do not name it allows.
//!
//! What it must never do: take long. A text is bounded where it enters (2 000 bytes); each view of it is read once by one automaton.
#![forbid(unsafe_code)]

mod fold;
mod links;
mod words;

use grandstand_core::moderation::Ruling;
use grandstand_core::record::Verdict;
use rustrict::{Censor, Type};

pub use links::Links;
pub use words::{ENTRIES_MAX, ENTRY_BYTES_MAX, Fault, Lists, Words};

/// All that the built-in classifier goes by.
#[derive(Debug, Default)]
pub struct Rules {
    pub words: Words,
    pub links: Links,
    /// Whether strict rooms have the English list beside the operator's own.
    pub english: bool,
}

impl Rules {
    /// `strict`: the room shows nothing without an allow.
    pub fn judge(&self, text: &str, strict: bool) -> Ruling {
        let mut ruling = self.words.judge(&fold::letters(text));
        if ruling.verdict != Verdict::Block
            && let Some(host) = self.links.denied(text)
        {
            ruling = Ruling::of(Verdict::Block, &format!("link: {host}"));
        }
        if strict && self.english && ruling.verdict != Verdict::Block {
            ruling = ruling.or(english(text));
        }
        ruling
    }
}

/// What the English list says: severe words are blocked, moderate ones flagged.
fn english(text: &str) -> Ruling {
    let found = Censor::from_str(text).analyze();
    if found.is(Type::INAPPROPRIATE & Type::SEVERE) {
        Ruling::of(Verdict::Block, "english: severe")
    } else if found.is(Type::INAPPROPRIATE & Type::MODERATE) {
        Ruling::of(Verdict::Flag, "english: moderate")
    } else {
        Ruling::ALLOW
    }
}

#[cfg(test)]
mod tests {
    use super::{Lists, Rules, Words};
    use grandstand_core::record::Verdict;

    fn rules(block: &str, flag: &str, allow: &str) -> Rules {
        Rules { words: Words::read(Lists { block, flag, allow }).unwrap(), ..Rules::default() }
    }

    fn blocked(rules: &Rules, text: &str) -> bool {
        rules.judge(text, false).verdict == Verdict::Block
    }

    #[test]
    fn an_entry_is_found_through_every_disguise() {
        let rules = rules("idiot\nkill yourself\nflock\nshit", "", "");
        for text in [
            "idiot",
            "you IDIOT!",
            "ｉｄｉｏｔ",
            "1d1ot",
            "!diot",
            "iiidiooot",
            "idi\u{200b}ot",
            "іdіоt",
            "i d i o t",
            "i.d.i.o.t",
            "id-iot",
            "ídiöt",
            "idiot123",
            "kill   yourself",
            "k1ll y0urself",
            "f1ock",
            "(idiot)",
            "idiot's",
            "s\u{41d}it",
        ] {
            assert_eq!(blocked(&rules, text), text != "idiot's", "{text}");
        }
    }

    #[test]
    fn scunthorpe_is_not_blocked() {
        let plain = rules("cunt\nass\nhit", "", "");
        for text in
            ["Scunthorpe", "class assessment", "push it", "bass hits", "shitake", "glass 4ever", "as is", "hi t"]
        {
            assert!(!blocked(&plain, text), "{text}");
        }
        let open = rules("*cunt*\nass*", "", "scunthorpe\nassess*\nassist");
        assert!(blocked(&open, "supercunts") && blocked(&open, "asshat"));
        for text in ["Scunthorpe United", "assist by Rice", "assessment", "S.C.U.N.T.H.O.R.P.E", "class"] {
            assert!(!blocked(&open, text), "{text}");
        }
        assert!(blocked(&open, "scunthorpe cunt"), "what is allowed hides only what it stands over");
    }

    #[test]
    fn a_word_with_another_number_of_letters_is_another_word() {
        let rules = rules("god\nass\nmet", "", "");
        for text in ["good", "as", "meet", "goood luck"] {
            assert_eq!(blocked(&rules, text), text == "goood luck", "{text}");
        }
        assert!(blocked(&rules, "asss") && blocked(&rules, "gooood") && blocked(&rules, "gÖd"));
    }

    #[test]
    fn the_rule_is_named_and_block_is_sterner_than_flag() {
        let rules = rules("idiot # comment", "*dumb*", "");
        let ruling = rules.judge("dumber idiot", false);
        assert_eq!((ruling.verdict, ruling.rule.as_deref()), (Verdict::Block, Some("block: idiot")));
        let ruling = rules.judge("dumber", false);
        assert_eq!((ruling.verdict, ruling.rule.as_deref()), (Verdict::Flag, Some("flag: *dumb*")));
        assert_eq!(rules.judge("nice", false), grandstand_core::moderation::Ruling::ALLOW);
    }

    #[test]
    fn other_scripts_and_pictures_are_found() {
        let rules = rules("傻逼\n🍆\nсука\n88", "", "");
        for text in ["你真是傻逼啊", "nice🍆🍆", "ну сука!", "СУКА", "h 88 h"] {
            assert!(blocked(&rules, text), "{text}");
        }
        for text in ["1988", "barsukа", "🍅"] {
            assert!(!blocked(&rules, text), "{text}");
        }
    }

    #[test]
    fn english_defaults_hold_in_strict_rooms_alone() {
        let rules = Rules { english: true, ..Rules::default() };
        assert_eq!(rules.judge("fuck you", false).verdict, Verdict::Allow);
        assert_ne!(rules.judge("fuck you", true).verdict, Verdict::Allow);
        for text in ["what a goal!", "Scunthorpe United", "assist by Rice", "push it", "GOOOOOAL", "class"] {
            assert_eq!(rules.judge(text, true).verdict, Verdict::Allow, "{text}");
        }
        assert_eq!(Rules::default().judge("fuck you", true).verdict, Verdict::Allow);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_told_by_its_line() {
        let fault = |block| Words::read(Lists { block, ..Lists::default() }).unwrap_err();
        assert_eq!(fault("ok\n\nb*d").1.line, 3);
        assert_eq!(fault("...").1.what, "an entry needs a letter, a digit or a picture");
        assert_eq!(fault(&"x".repeat(101)).1.what, "an entry has at most 100 bytes");
        assert!(Words::read(Lists::default()).unwrap().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_judged_and_a_listed_word_in_it_is_found(before in "\\PC{0,40}", after in "\\PC{0,40}", stars in 0..4) {
            let entry = ["idiot", "*idiot", "idiot*", "*idiot*"][stars as usize];
            let rules = rules(entry, "", "");
            rules.judge(&format!("{before}{after}"), true);
            let text = format!("{before} idiot {after}");
            proptest::prop_assert!(blocked(&rules, &text));
        }
    }
}
