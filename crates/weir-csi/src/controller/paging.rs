//! Pages: parts of a list. A token is the position of the last entry of a page, so that it holds when that entry is gone.

use tonic::Status;

use crate::rpc::Answer;

/// A page of entries in order of their positions, and the token of the next page, which is empty at the end.
pub fn page<T>(
    mut entries: Vec<T>,
    position_of: impl Fn(&T) -> String,
    max_entries: i32,
    token: &str,
) -> Answer<(Vec<T>, String)> {
    let max_entries =
        usize::try_from(max_entries).map_err(|_| Status::invalid_argument("max_entries is negative"))?;
    entries.sort_by_cached_key(&position_of);
    if !token.is_empty() {
        check(token)?;
        entries.retain(|entry| position_of(entry).as_str() > token);
    }
    let is_cut = max_entries > 0 && entries.len() > max_entries;
    if is_cut {
        entries.truncate(max_entries);
    }
    let next = entries.last().filter(|_| is_cut).map(position_of).unwrap_or_default();
    Ok((entries, next))
}

/// The position of an object: the older ones come first, so that new ones are in a later page.
pub fn position(created_ns: i128, id: &str) -> String {
    format!("{created_ns:024}:{id}")
}

/// Refuses a token that no page has had.
fn check(token: &str) -> Answer<()> {
    let time = token.split_once(':').map(|(time, _)| time);
    let is_position =
        time.is_some_and(|time| time.len() == 24 && time.bytes().all(|byte| byte.is_ascii_digit()));
    let refused = || Status::aborted(format!("'{token}' is no token of a page; begin again without one"));
    is_position.then_some(()).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_all_entries_also_when_the_last_one_goes() {
        let position_of = |entry: &i128| position(*entry, "x");
        let all = vec![3, 1, 2, 5, 4];
        let (first, token) = page(all.clone(), position_of, 2, "").unwrap();
        assert_eq!(first, [1, 2]);
        let without_two = vec![3, 1, 5, 4];
        let (second, token) = page(without_two, position_of, 2, &token).unwrap();
        assert_eq!(second, [3, 4]);
        assert_eq!(page(all.clone(), position_of, 2, &token).unwrap(), (vec![5], String::new()));
        assert_eq!(page(all, position_of, 0, "").unwrap().0.len(), 5);
        assert_eq!(page(vec![1], position_of, 1, "nonsense").unwrap_err().code(), tonic::Code::Aborted);
    }
}
