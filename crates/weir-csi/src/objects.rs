//! Objects of the daemon, as calls name them: volumes and snapshots by their identities.

use serde::de::DeserializeOwned;
use tonic::Status;
use uuid::Uuid;
use weir_api_types::{Attachment, Pool, Snapshot, Volume};
use weir_client::{CHANGE_TIME_MAX, Client, Method, of_tenant, read};

use crate::failure::of_daemon;
use crate::rpc::Answer;

/// The daemon, and the tenant of all volumes.
pub struct Objects {
    client: Client,
    tenant: String,
}

impl Objects {
    pub fn new(client: Client, tenant: String) -> Objects {
        Objects { client, tenant }
    }

    /// Reads an object.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.client.get(path, &[]).map_err(|error| of_daemon(&error))
    }

    /// Creates an object.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl serde::Serialize) -> Answer<T> {
        self.client.post(path, body).map_err(|error| of_daemon(&error))
    }

    /// Changes an object.
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl serde::Serialize) -> Answer<T> {
        let request = self.client.request(Method::PATCH, path, &[]).json(body);
        let sent = self.client.send(request, CHANGE_TIME_MAX);
        sent.and_then(read).map_err(|error| of_daemon(&error))
    }

    /// Deletes an object. One that is gone is no error.
    pub fn delete(&self, path: &str) -> Answer<()> {
        match self.client.delete(path) {
            Err(error) if error.is_not_found() => Ok(()),
            done => done.map_err(|error| of_daemon(&error)),
        }
    }

    fn list<T: DeserializeOwned>(&self, path: &str) -> Answer<Vec<T>> {
        let found = self.client.list(path, &[("tenant", Some(&self.tenant))]);
        found.map(|found| found.items).map_err(|error| of_daemon(&error))
    }

    /// The path of a list, or of an object in it, of the tenant.
    pub fn path(&self, noun: &str, name: Option<&str>) -> String {
        of_tenant(Some(&self.tenant), noun, name)
    }

    /// All pools of the daemon.
    pub fn pools(&self) -> Answer<Vec<Pool>> {
        let found = self.client.list("/v1/pools", &[]);
        found.map(|found| found.items).map_err(|error| of_daemon(&error))
    }

    /// All volumes of the tenant.
    pub fn volumes(&self) -> Answer<Vec<Volume>> {
        self.list("/v1/volumes")
    }

    /// All snapshots of the tenant.
    pub fn snapshots(&self) -> Answer<Vec<Snapshot>> {
        self.list("/v1/snapshots")
    }

    /// All attachments of the tenant.
    pub fn attachments(&self) -> Answer<Vec<Attachment>> {
        self.list("/v1/attachments")
    }

    /// The volume of this name, if there is one.
    pub fn volume_named(&self, name: &str) -> Answer<Option<Volume>> {
        match self.client.get(&self.path("volumes", Some(name)), &[]) {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some).map_err(|error| of_daemon(&error)),
        }
    }

    /// The volume of this identity.
    ///
    /// # Errors
    /// Not found if there is none.
    pub fn volume(&self, id: &str) -> Answer<Volume> {
        let unknown = || Status::not_found(format!("there is no volume '{id}'"));
        let id: Uuid = id.parse().map_err(|_| unknown())?;
        let volume: Volume = self.get(&format!("/v1/volumes/{id}"))?;
        if volume.tenant == self.tenant { Ok(volume) } else { Err(unknown()) }
    }

    /// The snapshot of this identity, if there is one.
    pub fn snapshot(&self, id: &str) -> Answer<Option<Snapshot>> {
        Ok(self.snapshots()?.into_iter().find(|snapshot| snapshot.id.to_string() == id))
    }

    /// The attachment of a volume, if it has one.
    pub fn attachment_of(&self, volume: &Volume) -> Answer<Option<Attachment>> {
        let path = format!("{}/attachments", self.path("volumes", Some(&volume.name)));
        let found = self.client.list(&path, &[]).map_err(|error| of_daemon(&error))?;
        Ok(found.items.into_iter().next())
    }
}
