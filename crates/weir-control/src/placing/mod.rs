//! Classes of volumes: the choice of a pool for the class that a volume requests, and the reports if the
//! class is not available.

mod by_template;

use std::sync::Arc;

use weir_plan::failure_domain::{Room, count_failure_domains, spread};
use weir_store::{DriveUsage, extent_count};
use weir_types::control_bounds::REPLICAS_MAX;
use weir_types::units::Size;
use weir_types::{Class, ClassPolicy, DriveId, DriveRole, Name};

use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::core::Core;
use crate::error::{ControlError, Outcome};
use crate::figures::{Figures, Usages};
use crate::measurements::Measurements;
use crate::model::Model;
use crate::model::pools::{Pool, pool_of, pools_in};
use crate::records::{DEFAULT_CLASS, DriveRecord, Placement, VolumeRecord, VolumeState};
use crate::volume_requests::CreateVolume;

/// A pool as a candidate for a volume.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pool: Name,
    class: Option<Class>,
    /// True for the pool of the default drive, while that drive has no class.
    is_fallback: bool,
    rooms: Vec<Room>,
    available_bytes: u64,
    /// Size that may still be provisioned, in bytes, if it is limited.
    provisionable_bytes: Option<u64>,
    /// Number of different zones of the drives, if any drive has a zone of its own.
    zones: Option<usize>,
    /// Number of different racks of the drives, if any drive has a rack.
    racks: Option<usize>,
}

/// A request for a placement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    class: Class,
    policy: ClassPolicy,
    /// Size of each replica, in bytes.
    bytes: u64,
    replicas: usize,
}

impl Wish {
    /// Size of all replicas together, in bytes.
    fn all_bytes(&self) -> u64 {
        self.bytes.saturating_mul(self.replicas as u64)
    }

    /// Requested number of replicas, in words, if there are several.
    fn replicas_words(&self) -> String {
        if self.replicas > 1 { format!(" and {} replicas", self.replicas) } else { String::new() }
    }
}

impl Offer {
    /// True if the pool can take the request. Volumes are thin, so their size counts only if provisioning is
    /// limited.
    fn can_take(&self, wish: &Wish) -> bool {
        self.rooms.len() >= wish.replicas
            && !self.rooms.is_empty()
            && self.available_bytes > 0
            && self.may_provision(wish.all_bytes())
    }

    /// True if the pool may have so many more bytes provisioned.
    fn may_provision(&self, bytes: u64) -> bool {
        self.provisionable_bytes.is_none_or(|provisionable| bytes <= provisionable)
    }

    /// Free space of the pool, in words; for several replicas also the number of drives.
    fn words(&self, replicas: usize) -> String {
        let pool = &self.pool;
        let class = if self.class.is_none() { " (class not known: 'drive measure' tells it)" } else { "" };
        let limit = self.provisionable_bytes.map(|bytes| format!(", {} of it provisionable", Size(bytes)));
        let free = roughly(self.available_bytes);
        let drives = match (replicas, self.rooms.len()) {
            (..=1, _) => String::new(),
            (_, 1) => " on 1 drive".to_owned(),
            (_, drives) => format!(" on {drives} drives"),
        };
        format!("pool '{pool}'{class} with {free} free{}{drives}", limit.unwrap_or_default())
    }

    /// Refuses replicas that would have to share a zone or rack, if zones or racks are configured.
    fn refuse_close(&self, replicas: usize) -> Outcome<()> {
        let domains = [("zone", self.zones), ("rack", self.racks)];
        let too_few =
            |&(what, count): &(&'static str, Option<usize>)| Some((what, count.filter(|n| *n < replicas)?));
        let Some((what, count)) = domains.iter().find_map(too_few) else { return Ok(()) };
        let (pool, plural) = (&self.pool, if count == 1 { "" } else { "s" });
        Err(ControlError::refused(format!(
            "{replicas} replicas cannot be in different {what}s: the drives of pool '{pool}' are in {count} \
             {what}{plural}; up to {count} would be accepted, and --force has some share a {what}"
        )))
    }
}

/// Refuses numbers of replicas that no volume can have.
pub(crate) fn check_replicas(replicas: u8) -> Outcome<()> {
    if (1..=REPLICAS_MAX).contains(&replicas) {
        return Ok(());
    }
    Err(ControlError::invalid(format!("{replicas} replicas are not accepted; 1 to {REPLICAS_MAX} are")))
}

/// Classes to try in turn for a preferred one. The next lower class comes first, because a better one was not
/// requested.
fn preference(wanted: Class) -> [Class; 3] {
    match wanted {
        Class::High => [Class::High, Class::Medium, Class::Low],
        Class::Medium => [Class::Medium, Class::Low, Class::High],
        Class::Low => [Class::Low, Class::Medium, Class::High],
    }
}

/// Offers that a volume may take, in order of preference.
fn candidates(offers: &[Offer], wanted: Class, policy: ClassPolicy) -> Vec<&Offer> {
    let of = |class: Option<Class>, is_fallback: bool| {
        offers.iter().filter(move |offer| offer.class == class && offer.is_fallback == is_fallback)
    };
    match policy {
        ClassPolicy::Strict => of(Some(wanted), false).collect(),
        ClassPolicy::Prefer => {
            let known = preference(wanted).into_iter().flat_map(|class| of(Some(class), false));
            known.chain(of(None, true)).chain(of(None, false)).collect()
        }
        ClassPolicy::Any => {
            let low = of(Some(Class::Low), false).chain(of(None, true));
            let better = [Class::Medium, Class::High].into_iter().flat_map(|class| of(Some(class), false));
            low.chain(better).chain(of(None, false)).collect()
        }
    }
}

/// Chooses the pool for a volume.
fn choose<'a>(offers: &'a [Offer], wish: &Wish) -> Outcome<&'a Offer> {
    let Wish { class: wanted, policy, bytes, replicas } = *wish;
    let found = candidates(offers, wanted, policy).into_iter().find(|offer| offer.can_take(wish));
    found.ok_or_else(|| {
        let there: Vec<String> = offers.iter().map(|offer| offer.words(replicas)).collect();
        let there = if there.is_empty() { "no drive at all".to_owned() } else { there.join(", ") };
        let remedy = match policy {
            ClassPolicy::Strict => "; --class-policy prefer takes another class",
            _ => "",
        };
        let class = if policy == ClassPolicy::Any { "any".to_owned() } else { wanted.to_string() };
        ControlError::full(format!(
            "a volume of {} with class {class}{} cannot be had: there is {there}{remedy}",
            Size(bytes),
            wish.replicas_words()
        ))
    })
}

/// Effective class policy of a request. A requested class is strict unless the request states another policy.
pub(crate) fn class_policy(asked: Option<Class>, policy: Option<ClassPolicy>) -> Outcome<ClassPolicy> {
    match (asked, policy) {
        (None, Some(ClassPolicy::Strict | ClassPolicy::Prefer)) => Err(ControlError::invalid(
            "a class policy says what becomes of a class that cannot be had; name one with --class",
        )),
        (None, _) => Ok(ClassPolicy::Any),
        (Some(_), policy) => Ok(policy.unwrap_or(ClassPolicy::Strict)),
    }
}

/// Drives of a pool that are present and not draining, with their space.
fn usable(pool: &Pool<'_>, usages: &Usages) -> Vec<(DriveId, DriveUsage)> {
    let usage = |drive: DriveId| usages.get(&drive)?.as_ref().ok().copied();
    let staying = pool.drives.iter().filter(|drive| !drive.is_draining);
    staying.filter_map(|drive| Some((drive.id, usage(drive.id)?))).collect()
}

/// A size rounded down for messages: to whole GiB from 10 GiB on, else to whole MiB.
fn roughly(bytes: u64) -> Size {
    let unit_bits = if bytes >= 10 << 30 { 30 } else { 20 };
    Size(bytes >> unit_bits << unit_bits)
}

/// A class, in words.
fn class_words(class: Option<Class>) -> String {
    class.map_or("no class yet".to_owned(), |class| format!("class {class}"))
}

fn unmet_alarm(model: &Model, volume: &VolumeRecord) -> ActiveAlarm {
    let actual = model.class_of(volume).map_or("not known".to_owned(), |class| class.to_string());
    ActiveAlarm {
        source: AlarmSource::Class,
        drive: None,
        volume: Some(volume.id),
        extent: None,
        message: format!("the class is not met: requested {}, actual {actual}", volume.io_priority),
    }
}

/// The alarm of a pool that is nearly full, raised before writes that need new space fail.
fn full_alarm(pool: &Pool<'_>, usages: &Usages, told_percent: u8) -> Option<ActiveAlarm> {
    let usable = usable(pool, usages);
    let together = DriveUsage::together(usable.iter().map(|(_, usage)| usage));
    let full_percent = together.full_percent();
    (together.size_bytes > 0 && full_percent >= told_percent).then(|| ActiveAlarm {
        source: AlarmSource::Space,
        drive: None,
        volume: None,
        extent: None,
        message: format!(
            "pool '{}' is {full_percent}% full: {} of {} are free; once nothing is, writes that need new space fail \
             until some is given back or a drive is added",
            pool.name,
            roughly(together.available_bytes),
            roughly(together.size_bytes)
        ),
    })
}

/// Chooses the drives of volumes.
pub struct Placing {
    pub(crate) core: Arc<Core>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) measurements: Arc<Measurements>,
    /// Usage from which a pool raises an alarm, in percent.
    pub(crate) pool_full_percent: u8,
}

impl Placing {
    /// Placement of a new volume.
    ///
    /// # Errors
    /// * Not found for an unknown drive.
    /// * Refused if the drive is missing or has another class than requested.
    /// * Refused if replicas would have to share a zone or rack, unless the request is forced.
    /// * Full if the class is not available, with the free space of each pool.
    /// * Full if the drive's pool may have no more provisioned.
    /// * Invalid for several replicas on one drive.
    pub(crate) fn place(&self, request: &CreateVolume, policy: ClassPolicy) -> Outcome<Placement> {
        let class = request.io_priority.unwrap_or(DEFAULT_CLASS);
        let replicas = usize::from(request.replicas.unwrap_or(1));
        let wish = Wish { class, policy, bytes: request.size_bytes, replicas };
        if let Some(name) = &request.drive {
            let usages = self.figures.usages();
            return place_on(&self.core.model(), name, &wish, &usages);
        }
        let offers = self.offers();
        let offer = choose(&offers, &wish).map_err(|error| self.with_reasons(error, &wish))?;
        if !request.force {
            offer.refuse_close(replicas)?;
        }
        let extents = spread(extent_count(request.size_bytes), replicas, &offer.rooms);
        Placement::of(&extents).ok_or_else(|| ControlError::internal("a pool without drives was chosen"))
    }

    /// Adds to a refusal of a class why drives are not of this class.
    fn with_reasons(&self, mut error: ControlError, wish: &Wish) -> ControlError {
        if wish.policy == ClassPolicy::Strict {
            error.message.push_str(&self.measurements.why_not(wish.class));
        }
        error
    }

    /// Drives that are present, and their room.
    pub(crate) fn rooms(&self) -> Vec<Room> {
        self.offers().into_iter().flat_map(|offer| offer.rooms).collect()
    }

    /// Offers of all pools.
    fn offers(&self) -> Vec<Offer> {
        let usages = self.figures.usages();
        let model = self.core.model();
        pools_in(&model).iter().map(|pool| offer(&model, pool, &usages)).collect()
    }

    /// Refuses a volume with a fixed placement if one of its pools may have no more provisioned.
    pub(crate) fn refuse_over_provision(&self, volume: &VolumeRecord) -> Outcome<()> {
        for offer in self.offers() {
            let bytes = |room: &Room| volume.placement.bytes_on(room.drive, volume.size_bytes);
            let bytes = offer.rooms.iter().map(bytes).sum();
            if !offer.may_provision(bytes) {
                let (more, there) = (Size(bytes), offer.words(1));
                return Err(ControlError::full(format!(
                    "{more} more cannot be provisioned: there is {there}; --force does so all the same"
                )));
            }
        }
        Ok(())
    }

    /// Places the extents that a volume gains by a resize, in the pool of the volume, or drops the extents
    /// that it loses.
    pub(crate) fn place_resized(&self, volume: &mut VolumeRecord, from_bytes: u64) -> Outcome<()> {
        let (old, new) = (extent_count(from_bytes), extent_count(volume.size_bytes));
        if new <= old {
            volume.placement.shorten(new);
            return Ok(());
        }
        let template = self.core.model().template_of(volume).cloned();
        if let Some(template) = template {
            return self.extend_by_template(volume, &template, from_bytes);
        }
        let usages = self.figures.usages();
        let model = self.core.model();
        let homes = volume.placement.holders(from_bytes);
        let home = homes.iter().copied().find(|drive| !model.is_draining(*drive)).unwrap_or(homes[0]);
        let pool = pool_of(&model, home).ok_or_else(|| ControlError::internal("a volume is on no pool"))?;
        let offer = offer(&model, &pool, &usages);
        let wish = Wish {
            class: volume.io_priority,
            policy: volume.class_policy,
            bytes: volume.size_bytes - from_bytes,
            replicas: usize::from(volume.replicas),
        };
        if !offer.can_take(&wish) {
            let (more, there) = (Size(wish.bytes), offer.words(wish.replicas));
            let replicas =
                if wish.replicas > 1 { format!(" in {} replicas", wish.replicas) } else { String::new() };
            return Err(ControlError::full(format!("{more} more{replicas} cannot be had: there is {there}")));
        }
        // Failure domains were checked when the volume was created; if they have changed, an alarm reports
        // it.
        volume.placement.extend(old, &spread(new - old, wish.replicas, &offer.rooms));
        Ok(())
    }

    /// An alarm for each volume without the class that it prefers. The alarms follow from the records and the
    /// drives alone.
    pub(crate) fn unmet_class_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.core.model();
        let volumes = model.volumes.values().map(|volume| &volume.record);
        let unmet = volumes
            .filter(|volume| volume.state == VolumeState::Online && !model.has_its_class(volume))
            .map(|volume| unmet_alarm(&model, volume));
        unmet.collect()
    }

    /// An alarm for each pool that is nearly full.
    pub(crate) fn full_pool_alarms(&self) -> Vec<ActiveAlarm> {
        let usages: Usages =
            self.figures.known_usages().into_iter().map(|(id, known)| (id, known.usage)).collect();
        let model = self.core.model();
        let pools = pools_in(&model);
        pools.iter().filter_map(|pool| full_alarm(pool, &usages, self.pool_full_percent)).collect()
    }
}

/// Placement on a named drive.
fn place_on(model: &Model, name: &Name, wish: &Wish, usages: &Usages) -> Outcome<Placement> {
    let Wish { class: wanted, policy, bytes: size_bytes, replicas } = *wish;
    let drive = model.usable_drive(name)?;
    if drive.role == DriveRole::Journal {
        return Err(ControlError::refused(format!(
            "drive '{name}' is for write journals, and holds no replica; name a data drive, or leave out --drive"
        )));
    }
    if replicas > 1 {
        return Err(ControlError::invalid(format!(
            "drive '{name}' can hold one of {replicas} replicas; without --drive they are spread over drives"
        )));
    }
    if policy == ClassPolicy::Strict && drive.class != Some(wanted) {
        let class = class_words(drive.class);
        return Err(ControlError::refused(format!(
            "drive '{name}' has {class}, not {wanted}; --class-policy prefer takes it all the same"
        )));
    }
    let pool = pool_of(model, drive.id).ok_or_else(|| ControlError::internal("a drive is in no pool"))?;
    let offer = offer(model, &pool, usages);
    if !offer.may_provision(size_bytes) {
        let (size, there) = (Size(size_bytes), offer.words(replicas));
        return Err(ControlError::full(format!(
            "a volume of {size} cannot be had on drive '{name}': there is {there}"
        )));
    }
    Ok(Placement::on(drive.id))
}

fn offer(model: &Model, pool: &Pool<'_>, usages: &Usages) -> Offer {
    let usable = usable(pool, usages);
    let usable_drives = || pool.drives.iter().filter(|drive| usable.iter().any(|(id, _)| *id == drive.id));
    let room = |(drive, (id, usage)): (&&DriveRecord, &(DriveId, DriveUsage))| Room {
        drive: *id,
        domain: model.domain_of(drive),
        size_bytes: usage.size_bytes,
        provisioned_bytes: model.provisioned_bytes(*id),
    };
    let rooms: Vec<Room> = usable_drives().zip(&usable).map(room).collect();
    let (zones, racks) = count_failure_domains(rooms.iter().map(|room| &room.domain));
    let together = DriveUsage::together(usable.iter().map(|(_, usage)| usage));
    let limit = |percent: u32| together.size_bytes / 100 * u64::from(percent);
    // Data of draining drives moves to the other drives.
    let drain = pool.drives.iter().filter(|drive| drive.is_draining);
    let drain: u64 = drain.map(|drive| model.provisioned_bytes(drive.id)).sum();
    let provisioned = drain + rooms.iter().map(|room| room.provisioned_bytes).sum::<u64>();
    Offer {
        pool: pool.name.clone(),
        class: pool.class,
        is_fallback: pool.class.is_none() && pool.drives.iter().any(|drive| drive.id == DriveId::DEFAULT),
        available_bytes: together.available_bytes,
        provisionable_bytes: pool
            .settings
            .over_provision_percent
            .map(|percent| limit(percent).saturating_sub(provisioned)),
        // All drives share the zone of the node, so it does not distinguish them.
        zones: usable_drives().any(|drive| drive.zone.is_some()).then_some(zones),
        racks: usable_drives().any(|drive| drive.rack.is_some()).then_some(racks),
        rooms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plan::failure_domain::FailureDomain;

    fn offer(pool: &str, class: Option<Class>, available_bytes: u64) -> Offer {
        let domain = FailureDomain::default();
        let room = Room { drive: DriveId::DEFAULT, domain, size_bytes: 100, provisioned_bytes: 0 };
        Offer {
            pool: Name::new(pool).unwrap(),
            class,
            is_fallback: pool == "default",
            rooms: vec![room],
            available_bytes,
            provisionable_bytes: None,
            zones: None,
            racks: None,
        }
    }

    fn chosen(offers: &[Offer], wanted: Class, policy: ClassPolicy) -> Result<String, String> {
        let wish = Wish { class: wanted, policy, bytes: 10, replicas: 1 };
        let chosen = choose(offers, &wish).map(|offer| offer.pool.to_string());
        chosen.map_err(|error| error.message)
    }

    #[test]
    fn class_policy_decides_between_class_refusal_and_next_best() {
        let all = [
            offer("default", None, 50),
            offer("low", Some(Class::Low), 50),
            offer("medium", Some(Class::Medium), 50),
            offer("high", Some(Class::High), 50),
        ];
        for class in Class::ALL {
            assert_eq!(chosen(&all, class, ClassPolicy::Strict), Ok(class.to_string()));
            assert_eq!(chosen(&all, class, ClassPolicy::Prefer), Ok(class.to_string()));
        }
        assert_eq!(chosen(&all[..3], Class::High, ClassPolicy::Prefer), Ok("medium".to_owned()));
        assert_eq!(chosen(&all[..2], Class::High, ClassPolicy::Prefer), Ok("low".to_owned()));
        let worse_first = [all[1].clone(), all[3].clone()];
        assert_eq!(chosen(&worse_first, Class::Medium, ClassPolicy::Prefer), Ok("low".to_owned()));
        let refusal = chosen(&all[..2], Class::High, ClassPolicy::Strict).unwrap_err();
        for words in ["class high cannot be had", "pool 'low' with", "--class-policy prefer", "not known"] {
            assert!(refusal.contains(words), "{refusal}");
        }
    }

    #[test]
    fn better_class_is_never_taken_unasked() {
        let (default, low) = (offer("default", None, 50), offer("low", Some(Class::Low), 50));
        let (medium, high) = (offer("medium", Some(Class::Medium), 50), offer("high", Some(Class::High), 50));
        let other = offer("other", None, 50);
        let any = |offers: &[&Offer]| {
            let offers: Vec<Offer> = offers.iter().map(|offer| (*offer).clone()).collect();
            chosen(&offers, Class::Low, ClassPolicy::Any).unwrap()
        };
        assert_eq!(any(&[&other, &high, &medium, &default, &low]), "low");
        assert_eq!(any(&[&other, &high, &medium, &default]), "default");
        assert_eq!(any(&[&other, &high, &medium]), "medium");
        assert_eq!(any(&[&other, &high]), "high");
        assert_eq!(any(&[&other]), "other");
    }

    #[test]
    fn full_pool_takes_no_volume() {
        let limited = Offer { provisionable_bytes: Some(9), ..offer("high", Some(Class::High), 50) };
        let full = offer("medium", Some(Class::Medium), 0);
        let offers = [limited, full, offer("low", Some(Class::Low), 50)];
        assert_eq!(chosen(&offers, Class::High, ClassPolicy::Prefer), Ok("low".to_owned()));
        let refusal = chosen(&offers, Class::High, ClassPolicy::Strict).unwrap_err();
        assert!(refusal.contains("9B of it provisionable"), "{refusal}");
    }

    #[test]
    fn replicas_need_distinct_drives_and_each_counts() {
        let low = offer("low", Some(Class::Low), 50);
        let with_drives = |name: &str, class: Class, drives: usize| Offer {
            rooms: vec![low.rooms[0].clone(); drives],
            ..offer(name, Some(class), 50)
        };
        let offers = [with_drives("high", Class::High, 2), with_drives("low", Class::Low, 3)];
        let of = |class, policy, replicas| {
            let wish = Wish { class, policy, bytes: 10, replicas };
            choose(&offers, &wish).map(|offer| offer.pool.to_string()).map_err(|error| error.message)
        };
        assert_eq!(of(Class::High, ClassPolicy::Strict, 2), Ok("high".to_owned()));
        assert_eq!(of(Class::High, ClassPolicy::Prefer, 3), Ok("low".to_owned()));
        let refusal = of(Class::High, ClassPolicy::Strict, 3).unwrap_err();
        assert!(
            refusal.contains("class high and 3 replicas") && refusal.contains("on 2 drives"),
            "{refusal}"
        );
        let limited = Offer { provisionable_bytes: Some(20), ..with_drives("low", Class::Low, 3) };
        let wish = |replicas| Wish { class: Class::Low, policy: ClassPolicy::Any, bytes: 10, replicas };
        assert!(limited.can_take(&wish(2)) && !limited.can_take(&wish(3)));
    }

    #[test]
    fn replicas_in_one_failure_domain_are_refused() {
        let low = offer("low", Some(Class::Low), 50);
        assert!(low.refuse_close(3).is_ok());
        for (zones, racks, words) in [
            (Some(2), None, "are in 2 zones; up to 2 would be accepted"),
            (Some(3), Some(1), "are in 1 rack;"),
            (None, Some(2), "are in 2 racks;"),
        ] {
            let error = Offer { zones, racks, ..low.clone() }.refuse_close(3).unwrap_err();
            assert!(error.message.contains(words), "{}", error.message);
        }
        assert!(Offer { zones: Some(3), racks: Some(3), ..low }.refuse_close(3).is_ok());
    }

    #[test]
    fn class_policy_without_a_class_is_refused() {
        assert_eq!(class_policy(None, None).unwrap(), ClassPolicy::Any);
        assert_eq!(class_policy(Some(Class::Low), None).unwrap(), ClassPolicy::Strict);
        assert_eq!(class_policy(Some(Class::Low), Some(ClassPolicy::Prefer)).unwrap(), ClassPolicy::Prefer);
        assert!(class_policy(None, Some(ClassPolicy::Strict)).is_err());
    }
}
