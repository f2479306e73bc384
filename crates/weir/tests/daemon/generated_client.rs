//! A program with a client that a public generator made from the description of the API.

use crate::common::daemon::Daemon;
use weir_generated_client::types::{VolumeCreate, VolumeModify};
use weir_generated_client::{Client, Error};

/// Number of volumes, in pages of [`PAGE`].
const VOLUMES: usize = 25;
const PAGE: u32 = 10;

fn client(daemon: &Daemon) -> Client {
    let socket = daemon.state().path().join("api.sock");
    let http = reqwest::Client::builder().no_proxy().unix_socket(socket).build().unwrap();
    Client::new_with_client("http://localhost", http)
}

async fn create(client: &Client, name: &str, key: &str) -> String {
    let request: VolumeCreate = serde_json::from_value(serde_json::json!({
        "name": name, "size_bytes": 1 << 20,
    }))
    .unwrap();
    let key = key.parse().unwrap();
    client.create_volume("default", Some(&key), &request).await.unwrap().into_inner().name
}

/// The names of all volumes, page by page.
async fn list(client: &Client) -> Vec<String> {
    let (mut names, mut token) = (Vec::new(), None);
    loop {
        let size = PAGE.try_into().ok();
        let page = client.list_tenant_volumes("default", size, token.as_deref()).await.unwrap().into_inner();
        assert!(page.items.len() <= PAGE as usize);
        names.extend(page.items.into_iter().map(|volume| volume.name));
        token = page.next_page_token;
        if token.is_none() {
            return names;
        }
    }
}

async fn work(client: &Client) {
    let mut wanted = Vec::new();
    for number in 0..VOLUMES {
        let name = format!("v{number:02}");
        assert_eq!(create(client, &name, &name).await, name);
        assert_eq!(create(client, &name, &name).await, name, "a retry with its key is answered alike");
        wanted.push(name);
    }
    assert_eq!(list(client).await, wanted);
    let volume = client.get_volume("default", "v00").await.unwrap().into_inner();
    let change: VolumeModify = serde_json::from_value(serde_json::json!({"size_bytes": 2 << 20})).unwrap();
    let outdated = format!("\"{}\"", volume.version + 1);
    let refused = client.modify_volume("default", "v00", None, Some(&outdated), &change).await;
    let Err(Error::ErrorResponse(problem)) = refused else { panic!("{refused:?}") };
    assert_eq!((problem.status().as_u16(), problem.code.to_string()), (412, "version_mismatch".to_owned()));
    let version = format!("\"{}\"", volume.version);
    let changed = client.modify_volume("default", "v00", None, Some(&version), &change).await.unwrap();
    assert_eq!(changed.size_bytes, 2 << 20);
    for name in &wanted {
        client.delete_volume("default", name, None, None, None, None).await.unwrap();
    }
    assert_eq!(list(client).await, Vec::<String>::new());
}

#[test]
fn generated_client_creates_pages_through_modifies_and_deletes_volumes() {
    let daemon = Daemon::fresh();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work(&client(&daemon)));
    daemon.stop();
}
