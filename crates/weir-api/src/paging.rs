//! Pages of lists: a list is ordered by a key, and a token names the last key of the page before.
//!
//! A token stays valid while objects come and go: the next page begins behind its key.

use weir_control::{ControlError, Outcome};

/// Largest number of items in one page.
const PAGE_ITEMS_MAX: u32 = 1000;
/// Number of items in a page, if the request names none.
const PAGE_ITEMS: u32 = 500;

/// Separates the parts of a key, so that keys have the order of their parts. No name has this character.
const SEPARATOR: char = '\0';

/// A page as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    size: usize,
    after: Option<String>,
}

/// The items of a page, and the token of the next page.
pub type Cut<T> = (Vec<T>, Option<String>);

/// The key of an object of a tenant.
pub fn key(tenant: &str, name: &str) -> String {
    format!("{tenant}{SEPARATOR}{name}")
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// Invalid, with the field, if the size or the token is not accepted.
    pub fn of(size: Option<u32>, token: Option<&str>) -> Outcome<Page> {
        let size = size.unwrap_or(PAGE_ITEMS);
        if !(1..=PAGE_ITEMS_MAX).contains(&size) {
            let message = format!("a page of {size} items is not accepted; 1 to {PAGE_ITEMS_MAX} are");
            return Err(ControlError::invalid(message).of_field("page_size"));
        }
        Ok(Page { size: size as usize, after: token.map(decode).transpose()? })
    }

    /// The part of an ordered list that the page shows, by the keys of its items.
    pub fn cut<T>(&self, ordered: impl IntoIterator<Item = T>, key: impl Fn(&T) -> String) -> Cut<T> {
        let is_before = |item: &T| self.after.as_ref().is_some_and(|after| key(item) <= *after);
        let mut rest = ordered.into_iter().skip_while(is_before);
        let items: Vec<T> = rest.by_ref().take(self.size).collect();
        let token = rest.next().and_then(|_| items.last()).map(|last| encode(&key(last)));
        (items, token)
    }
}

/// A key as a token, which can stand in a URL.
fn encode(key: &str) -> String {
    key.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(token: &str) -> Outcome<String> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> =
        token.as_bytes().chunks(2).map(|pair| digits(pair).filter(|_| pair.len() == 2)).collect();
    let key = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    key.ok_or_else(|| {
        let message = "the page token is not understood; the one of the answer before is accepted";
        ControlError::invalid(message).of_field("page_token")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all_pages(names: &[String], size: u32) -> Vec<Vec<String>> {
        let (mut pages, mut token) = (Vec::new(), None);
        loop {
            let page = Page::of(Some(size), token.as_deref()).unwrap();
            let (items, next) = page.cut(names.iter().cloned(), String::clone);
            pages.push(items);
            token = next;
            if token.is_none() {
                return pages;
            }
        }
    }

    proptest! {
        #[test]
        fn pages_join_to_the_list(names in prop::collection::btree_set("[a-z\u{e9}]{1,4}", 0..40), size in 1u32..20) {
            let names: Vec<String> = names.into_iter().collect();
            let pages = all_pages(&names, size);
            prop_assert_eq!(pages.concat(), names.clone());
            prop_assert!(pages.iter().all(|page| page.len() <= size as usize));
            prop_assert!(pages.len() <= names.len() / size as usize + 1);
        }
    }

    #[test]
    fn item_that_goes_between_two_pages_hides_no_other() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let (_, token) = Page::of(Some(2), None).unwrap().cut(names.clone(), String::clone);
        let left = [names[0].clone(), names[2].clone(), names[3].clone()];
        let (items, _) = Page::of(Some(2), token.as_deref()).unwrap().cut(left, String::clone);
        assert_eq!(items, ["c", "d"]);
    }

    #[test]
    fn unreadable_pages_are_refused_with_their_field() {
        for (size, token, field) in [
            (Some(0), None, "page_size"),
            (Some(1001), None, "page_size"),
            (None, Some("6"), "page_token"),
            (None, Some("zz"), "page_token"),
        ] {
            assert_eq!(Page::of(size, token).unwrap_err().field, Some(field));
        }
    }
}
