//! Placement by template: each replica of a volume on the pool of its class.

use weir_plan::failure_domain::{FailureDomain, Room, count_failure_domains, spread_among};
use weir_store::extent_count;
use weir_types::units::Size;
use weir_types::{ClassPolicy, DriveId};

use crate::error::{ControlError, Outcome};
use crate::placing::{Offer, Placing, Wish};
use crate::records::{Placement, TemplateRecord, VolumeRecord};

/// Chooses the pool for each replica of a template.
fn choose_all<'a>(offers: &'a [Offer], template: &TemplateRecord, bytes: u64) -> Outcome<Vec<&'a Offer>> {
    let of_class = |class: &_| {
        let replicas = template.replicas.iter().filter(|other| *other == class).count();
        let wish = Wish { class: *class, policy: ClassPolicy::Strict, bytes, replicas };
        let found = offers.iter().find(|offer| offer.class == Some(*class) && offer.can_take(&wish));
        found.ok_or_else(|| unavailable(offers, template, &wish))
    };
    template.replicas.iter().map(of_class).collect()
}

fn unavailable(offers: &[Offer], template: &TemplateRecord, wish: &Wish) -> ControlError {
    let there: Vec<String> = offers.iter().map(|offer| offer.words(wish.replicas)).collect();
    let there = if there.is_empty() { "no drive at all".to_owned() } else { there.join(", ") };
    let (name, size, class) = (&template.name, Size(wish.bytes), wish.class);
    let replicas = if wish.replicas == 1 {
        "a replica".to_owned()
    } else {
        format!("{} replicas on distinct drives", wish.replicas)
    };
    ControlError::full(format!(
        "template '{name}' puts {replicas} on class {class}, which cannot be had for {size}: there is {there}"
    ))
}

/// Drives of each extent, by replica.
fn spread_over(chosen: &[&Offer], template: &TemplateRecord, extents: u64) -> Vec<Vec<DriveId>> {
    let mut rooms: Vec<Room> = Vec::new();
    let mut among: Vec<Vec<usize>> = Vec::new();
    for (replica, offer) in chosen.iter().enumerate() {
        let same = template.replicas[..replica].iter().position(|class| *class == template.replicas[replica]);
        let own = same.map(|other| among[other].clone()).unwrap_or_else(|| {
            rooms.extend(offer.rooms.iter().cloned());
            (rooms.len() - offer.rooms.len()..rooms.len()).collect()
        });
        among.push(own);
    }
    spread_among(extents, &among, &rooms)
}

/// Refuses replicas that share a zone or rack, if zones or racks are configured.
fn refuse_close(chosen: &[&Offer], template: &TemplateRecord, extents: &[Vec<DriveId>]) -> Outcome<()> {
    let has_zones = chosen.iter().any(|offer| offer.zones.is_some());
    let has_racks = chosen.iter().any(|offer| offer.racks.is_some());
    for homes in extents.iter().filter(|_| has_zones || has_racks) {
        let domain = |home: &DriveId| -> Option<&FailureDomain> {
            let room = chosen.iter().flat_map(|offer| &offer.rooms).find(|room| room.drive == *home);
            room.map(|room| &room.domain)
        };
        let (zones, racks) = count_failure_domains(homes.iter().filter_map(domain));
        let close = [(has_zones, zones, "zone"), (has_racks, racks, "rack")];
        let close = close.iter().find(|(is_said, count, _)| *is_said && *count < homes.len());
        if let Some((_, count, what)) = close {
            let (replicas, name) = (homes.len(), &template.name);
            let plural = if *count == 1 { "" } else { "s" };
            return Err(ControlError::refused(format!(
                "the {replicas} replicas of template '{name}' ({}) cannot be in different {what}s: drives of their \
                 classes are in {count} {what}{plural} at most that are different; --force has some share a {what}",
                template.classes()
            )));
        }
    }
    Ok(())
}

impl Placing {
    /// Placement of a new volume that follows a template.
    ///
    /// # Errors
    /// Full if the pool of a class cannot take its replicas, with the free space of each pool. Refused if
    /// replicas would have to share a zone or rack, unless the request is forced.
    pub(crate) fn place_by_template(
        &self,
        template: &TemplateRecord,
        size_bytes: u64,
        force: bool,
    ) -> Outcome<Placement> {
        let offers = self.offers();
        let chosen = choose_all(&offers, template, size_bytes)?;
        let extents = spread_over(&chosen, template, extent_count(size_bytes));
        if !force {
            refuse_close(&chosen, template, &extents)?;
        }
        Placement::of(&extents).ok_or_else(|| ControlError::internal("pools without drives were chosen"))
    }

    /// Places the extents that a volume gains by a resize, as its template says. Failure domains were checked
    /// when the volume was created; if they have changed, an alarm reports it.
    pub(crate) fn extend_by_template(
        &self,
        volume: &mut VolumeRecord,
        template: &TemplateRecord,
        from_bytes: u64,
    ) -> Outcome<()> {
        let offers = self.offers();
        let chosen = choose_all(&offers, template, volume.size_bytes - from_bytes)?;
        let (old, new) = (extent_count(from_bytes), extent_count(volume.size_bytes));
        volume.placement.extend(old, &spread_over(&chosen, template, new - old));
        Ok(())
    }
}
