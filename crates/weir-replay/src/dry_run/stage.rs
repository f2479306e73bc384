//! The stage of a dry run: the policy trees as the data plane builds them.

use std::collections::BTreeMap;

use crate::Event;
use crate::world::{Drive, Place, Stage, StageNode};
use weir_qos::{Limit, Rate};
use weir_types::{Scope, Terms};

use super::figures::{BoundBy, Figures, Tally};
use crate::trace::{Header, TraceLevel};

/// Seed of the random numbers. It is fixed, so that all runs are alike.
const SEED: u64 = 1;

/// A stage, with the level or volume of each of its nodes.
pub struct Scene<'a> {
    /// The stage for the simulator.
    pub stage: Stage,
    /// The header that the stage comes from.
    pub header: &'a Header,
    /// The node of each volume.
    volumes: Vec<usize>,
    /// The level of each node. `None` for connections.
    levels: Vec<Option<&'a TraceLevel>>,
    /// The volume of each leaf.
    owners: BTreeMap<usize, usize>,
    leaves: BTreeMap<(usize, u32), usize>,
}

impl<'a> Scene<'a> {
    /// The levels of all volumes of a header, and their drives. [`Scene::leaf`] adds the connections.
    pub fn new(header: &'a Header) -> Scene<'a> {
        let drives = header.drives.iter().map(|drive| Drive::of(drive.emulation, drive.in_flight)).collect();
        let stage = Stage { drives, duration_ns: header.duration_ns, seed: SEED, ..Stage::default() };
        let mut scene = Scene {
            stage,
            header,
            volumes: Vec::new(),
            levels: Vec::new(),
            owners: BTreeMap::new(),
            leaves: BTreeMap::new(),
        };
        let mut known: BTreeMap<Vec<&Scope>, usize> = BTreeMap::new();
        for volume in &header.volumes {
            let (mut parent, mut path) = (None, Vec::new());
            for level in &volume.levels {
                path.push(&level.scope);
                let node = *known.entry(path.clone()).or_insert_with(|| {
                    scene.levels.push(Some(level));
                    scene.stage.nodes.push(StageNode { parent, terms: level.terms, place: Place::Inner });
                    scene.stage.nodes.len() - 1
                });
                parent = Some(node);
            }
            scene.volumes.push(parent.expect("a volume is under its own level at least"));
        }
        scene
    }

    /// The leaf of a connection.
    pub fn leaf(&mut self, volume: usize, connection: u32) -> usize {
        *self.leaves.entry((volume, connection)).or_insert_with(|| {
            let drive = self.header.volumes[volume].drive;
            let (parent, terms, place) =
                (Some(self.volumes[volume]), Terms::default(), Place::Leaf(Some(drive)));
            self.stage.nodes.push(StageNode { parent, terms, place });
            self.levels.push(None);
            let node = self.stage.nodes.len() - 1;
            self.owners.insert(node, volume);
            node
        })
    }

    /// An empty tally for each volume.
    pub fn tallies(&self) -> Vec<Tally> {
        self.header.volumes.iter().map(|_| Tally::default()).collect()
    }

    /// Counts an answer for its volume.
    pub fn count(&self, tallies: &mut [Tally], event: &Event) {
        if let Some(&volume) = self.owners.get(&event.node) {
            tallies[volume].add(event);
        }
    }

    /// Figures of a tally over some seconds.
    pub fn figures(&self, tally: Tally, seconds: f64) -> Figures {
        let bound_by = tally.bound_most().and_then(|(node, limit, share)| self.bound_by(node, limit, share));
        tally.figures(seconds, bound_by)
    }

    fn bound_by(&self, node: usize, limit: Limit, share: f64) -> Option<BoundBy> {
        let level = self.levels[node]?;
        let kind = match level.scope {
            Scope::Tenant(_) => "tenant",
            Scope::Group(_) => "policy group",
            Scope::Volume(_) => "volume",
            Scope::Cgroup(_) => "cgroup",
        };
        Some(BoundBy {
            level: kind,
            name: level.name.to_string(),
            limit: limit_in_words(&level.terms, limit),
            share,
        })
    }
}

/// A limit in words, for example `total 1000IOPS` or `burst read 2MB/s`.
fn limit_in_words(terms: &Terms, limit: Limit) -> String {
    let dimension = limit.dimension;
    let (prefix, rate) = match limit.rate {
        Rate::Sustained => ("", dimension.rate(&terms.limits)),
        Rate::Burst => ("burst ", terms.burst.and_then(|burst| dimension.rate(&burst.rates))),
    };
    let direction = match dimension.direction() {
        None => "total",
        Some(weir_qos::Direction::Read) => "read",
        Some(weir_qos::Direction::Write) => "write",
    };
    let rate = rate.unwrap_or_default();
    let rate = match dimension.is_bytes() {
        true => weir_types::Rate::BytesPerSecond(rate),
        false => weir_types::Rate::Iops(rate),
    };
    format!("{prefix}{direction} {rate}")
}
