//! Tests of upstream's older interfaces as components: `Instances` v1 with the SDK's adapter, and
//! labels of volumes, valid and hostile.

use std::{collections::BTreeMap, sync::Arc};

use skysail_host::{CallRecorder, Engine};
use skysail_provider::{
    AddressKind, Call, Code, Detail, Instances as _, Interface, Node, NodeSet, PersistentVolume,
    PersistentVolumeLabels as _,
};

use crate::{components::built, probes::Setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn instances_v1_answers_a_page_as_upstream_answers_each_node() {
    let built = built("probe-instances-v1");
    let probe = Setup::of("v1", &built);
    let probe = probe.serve(&Engine::on_demand().unwrap(), &CallRecorder::default()).await;
    assert_eq!(probe.release().interfaces(), [Interface::Instances]);
    let node = |name: &str, id: Option<&str>| {
        Arc::new(Node { name: name.to_owned(), provider_id: id.map(str::to_owned), ..Node::default() })
    };
    let nodes = NodeSet::new([
        node("a", Some("v1://m1")),
        node("b", Some("v1://by-name")),
        node("c", Some("v1://gone")),
        node("d", Some("v1://off")),
        node("new", None),
        node("never", None),
        node("refused", None),
        node("without-id", None),
    ]);
    let call = Call::default();
    let states = probe.describe(&call, &nodes, Detail::State).await.unwrap();
    let states: Vec<_> = states
        .iter()
        .zip(nodes.as_slice())
        .map(|(state, node)| match state {
            Ok(instance) => format!("{} {} off={}", node.name, instance.provider_id, instance.shutdown),
            Err(error) => format!("{} {:?} {error}", node.name, error.code),
        })
        .collect();
    assert_eq!(
        states,
        [
            "a v1://m1 off=false",
            "b v1://by-name off=false",
            "c NotFound the cloud has no machine \"v1://gone\"",
            "d v1://off off=true",
            "never NotFound instance not found",
            "new v1://new off=false",
            "refused Denied failed to get instance ID from cloud provider: the token expired",
            "without-id Unsupported unimplemented",
        ]
    );
    let found = probe.describe(&call, &nodes, Detail::Metadata).await.unwrap();
    let at = |name: &str| {
        let index = nodes.as_slice().iter().position(|node| node.name == name).unwrap();
        found[index].clone()
    };
    let (by_id, by_name, without) = (at("a").unwrap(), at("b").unwrap(), at("without-id").unwrap());
    assert_eq!((&*by_id.instance_type, &*by_id.zone, &*by_id.region), ("type-by-id", "z1", "r1"));
    assert_eq!((&by_id.addresses[0].kind, &*by_id.addresses[0].address), (&AddressKind::InternalDns, "m1.internal"));
    assert_eq!((&*by_name.instance_type, &*by_name.zone, &*by_name.addresses[0].address), ("type-by-name", "z2", "b"));
    assert_eq!((&*without.provider_id, without.without_provider_id), ("", true));
    assert!(!by_id.without_provider_id);
    assert_eq!(at("new").unwrap().provider_id, "v1://new");
    assert_eq!(at("refused").unwrap_err().code, Code::Denied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn volume_labels_of_a_hostile_guest_are_refused() {
    let built = built("probe-volume-labels");
    let probe = Setup::of("volume-labels", &built);
    let probe = probe.serve(&Engine::on_demand().unwrap(), &CallRecorder::default()).await;
    assert_eq!(probe.release().interfaces(), [Interface::PersistentVolumeLabels]);
    let map = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let volume = |handle: &str| PersistentVolume {
        name: "a".to_owned(),
        uid: "u".to_owned(),
        labels: map(&[("l", "1")]),
        annotations: map(&[("n", "2")]),
        storage_class: "fast".to_owned(),
        source: "csi".to_owned(),
        driver: "d".to_owned(),
        handle: handle.to_owned(),
        attributes: map(&[("fsType", "ext4")]),
    };
    let call = Call::default();
    for (handle, code, text) in [
        ("many", Code::Internal, "labels has 10000 entries, and at most 256 are allowed"),
        ("long", Code::Internal, "label value has 1048576 bytes, and at most 1024 are allowed"),
        ("twice", Code::Internal, "labels contains a key twice"),
        ("control", Code::Internal, "label value contains a control or invisible character"),
        ("gone", Code::NotFound, "no such volume"),
        ("other", Code::Invalid, "\"other\" is not a volume"),
    ] {
        let error = probe.labels(&call, "kubernetes", &volume(handle)).await.unwrap_err();
        assert!(error.code == code && error.message.contains(text), "{handle}: {error:?}");
    }
    let labels = probe.labels(&call, "kubernetes", &volume("good")).await.unwrap();
    let all = [
        ("class", "fast"),
        ("cluster", "kubernetes"),
        ("driver", "d"),
        ("fsType", "ext4"),
        ("l", "1"),
        ("n", "2"),
        ("name", "a"),
        ("source", "csi"),
        ("uid", "u"),
    ];
    assert_eq!(labels, map(&all));
}
