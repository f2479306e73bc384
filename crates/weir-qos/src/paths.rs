//! Paths: the nodes of an administration's workloads in a tree, by the names of all levels from the top.
//!
//! A node exists as long as there is a node below it. The same name under two parents is two nodes.

use std::collections::BTreeMap;

use weir_types::Terms;

use crate::ceiling::Limit;
use crate::tree::{NodeId, ROOT, Tree};

/// Credit of a node under each of its limits, in nanoseconds at the burst rate.
pub type Credits = Vec<(Limit, u64)>;

/// A level that has a node.
#[derive(Clone, Copy, Debug)]
struct Planted {
    node: NodeId,
    terms: Terms,
}

/// The nodes of a tree by path. `K` names a level.
#[derive(Debug)]
pub struct Paths<K> {
    nodes: BTreeMap<Vec<K>, Planted>,
    /// Number of nodes whose terms have a burst. If there is none, no node is searched for credit.
    bursting: usize,
}

impl Planted {
    /// Returns 1 if the terms have a burst, else 0.
    fn bursting(&self) -> usize {
        usize::from(self.terms.burst.is_some())
    }
}

impl<K> Default for Paths<K> {
    fn default() -> Self {
        Paths { nodes: BTreeMap::new(), bursting: 0 }
    }
}

impl<K: Ord + Clone> Paths<K> {
    /// Returns the node at the end of a path. Missing nodes are added, with the credits that `saved` returns.
    /// Existing nodes take over the terms.
    pub fn plant<T: Copy>(
        &mut self,
        tree: &mut Tree<T>,
        path: &[(K, Terms)],
        now_ns: u64,
        saved: impl Fn(&K) -> Credits,
    ) -> NodeId {
        let mut parent = ROOT;
        let mut keys = Vec::with_capacity(path.len());
        for (key, terms) in path {
            keys.push(key.clone());
            parent = match self.nodes.get_mut(&keys) {
                Some(planted) => {
                    if planted.terms != *terms {
                        self.bursting -= planted.bursting();
                        planted.terms = *terms;
                        self.bursting += planted.bursting();
                        tree.change(planted.node, terms, now_ns);
                    }
                    planted.node
                }
                None => {
                    let node = tree.add_inner(parent, terms, now_ns);
                    saved(key).into_iter().for_each(|(limit, ns)| tree.set_credit_ns(node, limit, ns));
                    let planted = Planted { node, terms: *terms };
                    self.bursting += planted.bursting();
                    self.nodes.insert(keys.clone(), planted);
                    node
                }
            };
        }
        parent
    }

    /// Removes the nodes of a path that have no node below them any more.
    pub fn uproot<T: Copy>(&mut self, tree: &mut Tree<T>, path: &[K]) {
        for length in (1..=path.len()).rev() {
            let keys = &path[..length];
            let Some(planted) = self.nodes.get(keys) else { continue };
            if tree.children(planted.node) > 0 {
                return;
            }
            tree.remove(planted.node);
            self.bursting -= planted.bursting();
            self.nodes.remove(keys);
        }
    }

    /// Returns the node of a path.
    pub fn node(&self, path: &[K]) -> Option<NodeId> {
        self.nodes.get(path).map(|planted| planted.node)
    }

    /// Changes the terms of a level in all its nodes; true if there is one.
    pub fn change<T: Copy>(&mut self, tree: &mut Tree<T>, key: &K, terms: &Terms, now_ns: u64) -> bool {
        let mut is_found = false;
        let planted = self.nodes.iter_mut().filter(|(keys, _)| keys.last() == Some(key));
        for (_, planted) in planted {
            is_found = true;
            self.bursting -= planted.bursting();
            planted.terms = *terms;
            self.bursting += planted.bursting();
            tree.change(planted.node, terms, now_ns);
        }
        is_found
    }

    /// Returns the burst credit of all nodes.
    pub fn credits<T: Copy>(&self, tree: &mut Tree<T>, now_ns: u64) -> Vec<(K, Credits)> {
        if self.bursting == 0 {
            return Vec::new();
        }
        let credits = |(keys, planted): (&Vec<K>, &Planted)| {
            planted.terms.burst?;
            let saved = tree.credits(now_ns, planted.node);
            Some((keys.last()?.clone(), saved.into_iter().map(|(limit, ns, _)| (limit, ns)).collect()))
        };
        self.nodes.iter().filter_map(credits).collect()
    }

    /// Returns true if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{Burst, InitialCredit, Limits, Throughput};

    fn path(names: &[&'static str]) -> Vec<(&'static str, Terms)> {
        names.iter().map(|name| (*name, Terms::default())).collect()
    }

    #[test]
    fn level_is_removed_with_its_last_child() {
        let (mut tree, mut paths) = (Tree::<u32>::new(0), Paths::default());
        let none = |_: &&str| Vec::new();
        let first = paths.plant(&mut tree, &path(&["tenant", "group", "one"]), 0, none);
        let second = paths.plant(&mut tree, &path(&["tenant", "group", "two"]), 0, none);
        let elsewhere = paths.plant(&mut tree, &path(&["tenant", "one"]), 0, none);
        assert!(first != second && first != elsewhere);
        let group = paths.node(&["tenant", "group"]).unwrap();
        assert_eq!((tree.children(group), tree.children(ROOT)), (2, 1));
        paths.uproot(&mut tree, &["tenant", "group", "one"]);
        assert_eq!((paths.node(&["tenant", "group"]), tree.children(group)), (Some(group), 1));
        paths.uproot(&mut tree, &["tenant", "group", "two"]);
        assert_eq!(paths.node(&["tenant", "group"]), None);
        paths.uproot(&mut tree, &["tenant", "one"]);
        assert!(paths.is_empty() && tree.children(ROOT) == 0);
    }
    #[test]
    fn credit_is_reported_for_levels_with_a_burst() {
        let (mut tree, mut paths) = (Tree::<u32>::new(0), Paths::default());
        let total = |text| Limits { total: Throughput::parse(text).unwrap(), ..Limits::default() };
        let plain = Terms::limited(total("100IOPS"));
        let burst = Burst { rates: total("200IOPS"), seconds: 10, initial_credit: InitialCredit::Full };
        let bursting = Terms { burst: Some(burst), ..plain };
        let told = |paths: &Paths<&'static str>, tree: &mut Tree<u32>| {
            paths.credits(tree, 0).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        let none = |_: &&str| Vec::new();
        paths.plant(&mut tree, &[("group", plain), ("one", bursting)], 0, none);
        paths.plant(&mut tree, &[("group", plain), ("two", plain)], 0, none);
        assert_eq!(told(&paths, &mut tree), ["one"]);
        paths.change(&mut tree, &"one", &plain, 0);
        assert_eq!(told(&paths, &mut tree), [""; 0]);
        paths.change(&mut tree, &"group", &bursting, 0);
        assert_eq!(told(&paths, &mut tree), ["group"]);
        paths.plant(&mut tree, &[("group", bursting), ("two", bursting)], 0, none);
        paths.uproot(&mut tree, &["group", "one"]);
        assert_eq!(told(&paths, &mut tree), ["group", "two"]);
        paths.uproot(&mut tree, &["group", "two"]);
        assert_eq!((told(&paths, &mut tree), paths.bursting), (Vec::new(), 0));
    }
}
