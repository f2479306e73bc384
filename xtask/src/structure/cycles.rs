//! Strongly connected components of a graph of numbered nodes, by Tarjan's algorithm.

/// The components with more than one node, each with its nodes in ascending order.
pub fn circles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        edges,
        index: vec![None; edges.len()],
        low: vec![0; edges.len()],
        is_open: vec![false; edges.len()],
        open: Vec::new(),
        next: 0,
        found: Vec::new(),
    };
    (0..edges.len()).for_each(|node| search.visit(node));
    search.found
}

struct Search<'a> {
    edges: &'a [Vec<usize>],
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    is_open: Vec<bool>,
    open: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        if self.index[node].is_some() {
            return;
        }
        (self.index[node], self.low[node]) = (Some(self.next), self.next);
        self.next += 1;
        self.open.push(node);
        self.is_open[node] = true;
        for &to in &self.edges[node] {
            match self.index[to] {
                None => {
                    self.visit(to);
                    self.low[node] = self.low[node].min(self.low[to]);
                }
                Some(index) if self.is_open[to] => self.low[node] = self.low[node].min(index),
                Some(_) => {}
            }
        }
        if Some(self.low[node]) != self.index[node] {
            return;
        }
        let begin =
            self.open.iter().position(|open| *open == node).expect("a node is open until it is taken");
        let mut circle = self.open.split_off(begin);
        circle.iter().for_each(|member| self.is_open[*member] = false);
        circle.sort_unstable();
        if circle.len() > 1 {
            self.found.push(circle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circle_is_found_and_chain_is_none() {
        assert_eq!(circles(&[vec![1], vec![2], vec![]]), Vec::<Vec<usize>>::new());
        assert_eq!(circles(&[vec![1], vec![2], vec![0], vec![0]]), [[0, 1, 2]]);
        assert_eq!(circles(&[vec![1], vec![0], vec![3], vec![2, 0]]), [[0, 1], [2, 3]]);
    }
}
