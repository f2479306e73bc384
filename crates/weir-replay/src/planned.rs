//! The clients of a [`Plan`], on its stage.

use weir_qos::{DriveModel, DriveRates};
use weir_types::Emulation;
use weir_types::bounds::RATE_BYTES_PER_SECOND_MAX;

use super::world::{Clients, Demand, Drive, Place, Stage, StageNode, Work, play};
use super::{Event, History, Plan, PlannedDrive};

/// Plays a plan to its end.
pub fn run(plan: &Plan) -> History {
    let drives: Vec<Drive> = plan.planned_drive.iter().map(drive).collect();
    let drive = plan.planned_drive.map(|_| 0);
    let nodes = plan.nodes.iter().map(|node| StageNode {
        parent: node.parent,
        terms: node.terms,
        place: if node.load.is_some() { Place::Leaf(drive) } else { Place::Inner },
    });
    let stage = Stage {
        nodes: nodes.collect(),
        drives,
        duration_ns: plan.duration_ns,
        late_ns_max: plan.late_ns_max,
        seed: plan.seed,
    };
    let mut planned = Planned { plan, history: History::default() };
    let depths = play(&stage, &mut planned);
    planned.history.depth = depths.first().copied().unwrap_or(0);
    planned.history
}

fn drive(planned_drive: &PlannedDrive) -> Drive {
    let PlannedDrive { iops, bytes_per_second, latency_ns, queue_target } = *planned_drive;
    let bandwidth = Some(bytes_per_second).filter(|rate| *rate <= RATE_BYTES_PER_SECOND_MAX);
    Drive {
        model: DriveModel::even(DriveRates { iops, bytes_per_second }),
        emulation: Some(Emulation::even(iops, bandwidth, latency_ns)),
        queue_target,
        in_flight: None,
    }
}

struct Planned<'a> {
    plan: &'a Plan,
    history: History,
}

impl Planned<'_> {
    fn demand(&self, node: usize) -> Option<Demand> {
        let load = self.plan.nodes[node].load.as_ref()?;
        let (kind, bytes, work) = (load.kind, load.bytes, Work::Turns);
        Some(Demand { node, name: node, kind, bytes, volume: node, offset: 0, work, after_ns: 0 })
    }
}

impl Clients for Planned<'_> {
    fn begin(&mut self) -> Vec<(u64, Demand)> {
        let mut first = Vec::new();
        for (node, planned) in self.plan.nodes.iter().enumerate() {
            let (Some(demand), Some(load)) = (self.demand(node), &planned.load) else { continue };
            for (from_ns, _) in &load.active {
                first.extend((0..load.depth).map(|_| (*from_ns, demand)));
            }
        }
        first
    }

    fn admitted(&mut self, at_ns: u64, node: usize) {
        self.history.admissions.push((at_ns, node));
    }

    fn answered(&mut self, event: &Event, node: usize, next: &mut Vec<(u64, Demand)>) {
        self.history.events.push(*event);
        let (Some(demand), Some(load)) = (self.demand(node), &self.plan.nodes[node].load) else { return };
        let again_ns = event.answered_ns + load.think_ns;
        if load.active.iter().any(|&(from_ns, until_ns)| (from_ns..until_ns).contains(&again_ns)) {
            next.push((again_ns, demand));
        }
    }
}
