//! The parts of a WIT package that a component depends on, as names and lines that can be compared.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use wit_parser::{
    Function, Handle, PackageId, Resolve, Type, TypeDefKind, TypeId, TypeOwner, UnresolvedPackageGroup, WorldItem,
    WorldKey,
};

use super::shipped::Folder;

/// A package without its documentation and its version.
#[derive(Debug)]
pub(super) struct Shape {
    /// `record types.node` and the like, with one line for each field, case, parameter or result.
    pub(super) items: BTreeMap<String, Vec<String>>,
    /// Worlds with `import x` and `export y`.
    pub(super) worlds: BTreeMap<String, BTreeSet<String>>,
    /// The name of the package's folder: its version, after the package's name for every package
    /// but `skysail:provider`.
    pub(super) folder: String,
}

/// The package that a component is built against. Another package is for tools, and may use its
/// types.
const PROVIDER: &str = "provider";

impl Shape {
    /// Reads a package from its files: name and text. `used` are the packages whose types it may
    /// use.
    pub(super) fn read<'a>(files: &Folder, used: impl IntoIterator<Item = &'a Folder>) -> Result<Self> {
        let mut resolve = Resolve::default();
        for used in used {
            resolve.push_group(parsed(used)?).context("the WIT of another package does not resolve")?;
        }
        let package = resolve.push_group(parsed(files)?).context("the WIT does not resolve")?;
        Self::of(&resolve, package)
    }

    fn of(resolve: &Resolve, package: PackageId) -> Result<Self> {
        let package = &resolve.packages[package];
        let mut items = BTreeMap::new();
        for (name, id) in &package.interfaces {
            let interface = &resolve.interfaces[*id];
            items.insert(format!("interface {name}"), Vec::new());
            for (ty, id) in &interface.types {
                let (kind, lines) = definition(resolve, *id);
                items.insert(format!("{kind} {name}.{ty}"), lines);
            }
            for (function, it) in &interface.functions {
                items.insert(format!("function {name}.{function}"), signature(resolve, it));
            }
        }
        let worlds = package.worlds.iter().map(|(name, id)| {
            let world = &resolve.worlds[*id];
            let imports = world.imports.iter().map(|(key, item)| ("import", key, item));
            let all = imports.chain(world.exports.iter().map(|(key, item)| ("export", key, item)));
            (name.clone(), all.map(|(way, key, item)| format!("{way} {}", world_item(resolve, key, item))).collect())
        });
        let worlds = worlds.collect();
        let version = package.name.version.as_ref().context("the package has no version")?;
        let prefix = if package.name.name == PROVIDER { String::new() } else { format!("{}-", package.name.name) };
        Ok(Self { items, worlds, folder: format!("{prefix}v{version}") })
    }
}

fn parsed(files: &Folder) -> Result<UnresolvedPackageGroup> {
    let mut map = wit_parser::SourceMap::new();
    for (name, text) in files {
        map.push_str(name, text.as_str());
    }
    map.parse().map_err(|(_, error)| error).context("the WIT does not parse")
}

fn world_item(resolve: &Resolve, key: &WorldKey, item: &WorldItem) -> String {
    let name = match key {
        WorldKey::Name(name) => name.clone(),
        WorldKey::Interface(id) => resolve.interfaces[*id].name.clone().unwrap_or_default(),
    };
    match item {
        WorldItem::Interface { .. } => name,
        WorldItem::Function(function) => format!("{name}({})", signature(resolve, function).join(", ")),
        WorldItem::Type { id, .. } => format!("{name} = {}", named(resolve, *id)),
    }
}

fn signature(resolve: &Resolve, function: &Function) -> Vec<String> {
    let mut lines: Vec<_> =
        function.params.iter().map(|param| format!("{}: {}", param.name, ty(resolve, &param.ty))).collect();
    lines
        .push(function.result.as_ref().map_or("-> nothing".to_owned(), |result| format!("-> {}", ty(resolve, result))));
    if function.kind.is_async() {
        lines.push("async".to_owned());
    }
    lines
}

fn definition(resolve: &Resolve, id: TypeId) -> (&'static str, Vec<String>) {
    let kind = &resolve.types[id].kind;
    let lines = match kind {
        TypeDefKind::Record(it) => {
            it.fields.iter().map(|field| format!("{}: {}", field.name, ty(resolve, &field.ty))).collect()
        }
        TypeDefKind::Variant(it) => {
            let cases = it.cases.iter();
            cases
                .map(|case| {
                    case.ty
                        .as_ref()
                        .map_or(case.name.clone(), |payload| format!("{}({})", case.name, ty(resolve, payload)))
                })
                .collect()
        }
        TypeDefKind::Enum(it) => it.cases.iter().map(|case| case.name.clone()).collect(),
        TypeDefKind::Flags(it) => it.flags.iter().map(|flag| flag.name.clone()).collect(),
        TypeDefKind::Resource => Vec::new(),
        _ => vec![structure(resolve, kind)],
    };
    let is_alias = !matches!(
        kind,
        TypeDefKind::Record(_)
            | TypeDefKind::Variant(_)
            | TypeDefKind::Enum(_)
            | TypeDefKind::Flags(_)
            | TypeDefKind::Resource
    );
    (if is_alias { "type" } else { kind.as_str() }, lines)
}

fn ty(resolve: &Resolve, ty: &Type) -> String {
    match ty {
        Type::Id(id) => named(resolve, *id),
        plain => format!("{plain:?}").to_lowercase(),
    }
}

/// A named type by its name and the interface that defines it, following `use`.
fn named(resolve: &Resolve, id: TypeId) -> String {
    let def = &resolve.types[id];
    match (&def.name, &def.kind) {
        (Some(name), TypeDefKind::Type(Type::Id(origin))) if resolve.types[*origin].name.as_ref() == Some(name) => {
            named(resolve, *origin)
        }
        (Some(name), _) => match def.owner {
            TypeOwner::Interface(id) => {
                format!("{}.{name}", resolve.interfaces[id].name.as_deref().unwrap_or_default())
            }
            TypeOwner::World(id) => format!("{}.{name}", resolve.worlds[id].name),
            TypeOwner::None => name.clone(),
        },
        (None, kind) => structure(resolve, kind),
    }
}

fn structure(resolve: &Resolve, kind: &TypeDefKind) -> String {
    let optional = |it: &Option<Type>| it.as_ref().map_or("_".to_owned(), |it| ty(resolve, it));
    match kind {
        TypeDefKind::Tuple(it) => {
            format!("tuple<{}>", it.types.iter().map(|it| ty(resolve, it)).collect::<Vec<_>>().join(", "))
        }
        TypeDefKind::Option(it) => format!("option<{}>", ty(resolve, it)),
        TypeDefKind::Result(it) => format!("result<{}, {}>", optional(&it.ok), optional(&it.err)),
        TypeDefKind::List(it) => format!("list<{}>", ty(resolve, it)),
        TypeDefKind::FixedLengthList(it, length) => format!("list<{}, {length}>", ty(resolve, it)),
        TypeDefKind::Map(key, value) => format!("map<{}, {}>", ty(resolve, key), ty(resolve, value)),
        TypeDefKind::Handle(Handle::Own(id)) => named(resolve, *id),
        TypeDefKind::Handle(Handle::Borrow(id)) => format!("borrow<{}>", named(resolve, *id)),
        TypeDefKind::Future(it) => format!("future<{}>", optional(it)),
        TypeDefKind::Stream(it) => format!("stream<{}>", optional(it)),
        TypeDefKind::Type(it) => ty(resolve, it),
        TypeDefKind::Record(_)
        | TypeDefKind::Variant(_)
        | TypeDefKind::Enum(_)
        | TypeDefKind::Flags(_)
        | TypeDefKind::Resource
        | TypeDefKind::Unknown => kind.as_str().to_owned(),
    }
}
