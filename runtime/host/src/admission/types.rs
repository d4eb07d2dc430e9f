//! Compares the types of a component's functions with those of the contract by structure, and names
//! the first difference.

use std::collections::BTreeSet;

use wit_parser::{Function, Handle, Resolve, Type, TypeDefKind, TypeId, TypeOwner};

use super::shown;

/// The types of the contract (`ours`) and of a component (`theirs`).
pub(super) struct Comparison<'a> {
    ours: &'a Resolve,
    theirs: &'a Resolve,
    /// Pairs that are equal or are being compared. Types are shared, so comparing each path would
    /// take exponential time.
    seen: BTreeSet<(usize, usize)>,
}

/// A description of the difference, outermost place first.
type Difference = Option<String>;

impl<'a> Comparison<'a> {
    pub(super) const fn new(ours: &'a Resolve, theirs: &'a Resolve) -> Self {
        Self { ours, theirs, seen: BTreeSet::new() }
    }

    /// None if both functions have the same type.
    pub(super) fn function(&mut self, ours: &Function, theirs: &Function) -> Difference {
        if ours.params.len() != theirs.params.len() {
            return Some(format!("it has {} parameters instead of {}", theirs.params.len(), ours.params.len()));
        }
        for (ours, theirs) in ours.params.iter().zip(&theirs.params) {
            if ours.name != theirs.name {
                return Some(format!("parameter `{}` is called `{}`", ours.name, shown(&theirs.name)));
            }
            if let Some(difference) = self.types(&ours.ty, &theirs.ty) {
                return Some(format!("parameter `{}`: {difference}", ours.name));
            }
        }
        self.options(ours.result.as_ref(), theirs.result.as_ref()).map(|difference| format!("result: {difference}"))
    }

    fn types(&mut self, ours: &Type, theirs: &Type) -> Difference {
        let (ours, theirs) = (self.resolved(self.ours, ours), self.resolved(self.theirs, theirs));
        match (ours, theirs) {
            (Type::Id(ours), Type::Id(theirs)) => {
                if !self.seen.insert((ours.index(), theirs.index())) {
                    return None;
                }
                let (kinds, name) = (self.kinds(ours, theirs), self.name_of(ours));
                let difference = match kinds {
                    Some((TypeDefKind::Resource, TypeDefKind::Resource)) => self.resources_differ(ours, theirs),
                    Some((ours, theirs)) => self.kinds_differ(ours, theirs),
                    None => Some("it cannot be read".to_owned()),
                };
                difference.map(|difference| name.map_or(difference.clone(), |name| format!("`{name}`: {difference}")))
            }
            _ if ours == theirs => None,
            _ => Some(format!("it is {} instead of {}", self.word(self.theirs, &theirs), self.word(self.ours, &ours))),
        }
    }

    fn kinds(&self, ours: TypeId, theirs: TypeId) -> Option<(&'a TypeDefKind, &'a TypeDefKind)> {
        Some((&self.ours.types.get(ours)?.kind, &self.theirs.types.get(theirs)?.kind))
    }

    fn name_of(&self, ours: TypeId) -> Option<&'a str> {
        self.ours.types.get(ours)?.name.as_deref()
    }

    /// The type that an alias stands for.
    fn resolved(&self, resolve: &Resolve, ty: &Type) -> Type {
        let mut ty = *ty;
        while let Type::Id(id) = ty
            && let Some(TypeDefKind::Type(aliased)) = resolve.types.get(id).map(|def| &def.kind)
        {
            ty = *aliased;
        }
        ty
    }

    fn word(&self, resolve: &Resolve, ty: &Type) -> String {
        match ty {
            Type::Id(id) => resolve.types.get(*id).map_or("unknown", |def| def.kind.as_str()).to_owned(),
            simple => format!("{simple:?}").to_lowercase(),
        }
    }

    fn kinds_differ(&mut self, ours: &TypeDefKind, theirs: &TypeDefKind) -> Difference {
        use TypeDefKind as Kind;
        match (ours, theirs) {
            (Kind::Record(ours), Kind::Record(theirs)) => {
                let ours = ours.fields.iter().map(|field| (field.name.as_str(), Some(&field.ty))).collect();
                self.members(
                    "field",
                    ours,
                    theirs.fields.iter().map(|field| (field.name.as_str(), Some(&field.ty))).collect(),
                )
            }
            (Kind::Variant(ours), Kind::Variant(theirs)) => {
                let ours = ours.cases.iter().map(|case| (case.name.as_str(), case.ty.as_ref())).collect();
                self.members(
                    "case",
                    ours,
                    theirs.cases.iter().map(|case| (case.name.as_str(), case.ty.as_ref())).collect(),
                )
            }
            (Kind::Enum(ours), Kind::Enum(theirs)) => {
                let ours = ours.cases.iter().map(|case| (case.name.as_str(), None)).collect();
                self.members("case", ours, theirs.cases.iter().map(|case| (case.name.as_str(), None)).collect())
            }
            (Kind::Flags(ours), Kind::Flags(theirs)) => {
                let ours = ours.flags.iter().map(|flag| (flag.name.as_str(), None)).collect();
                self.members("flag", ours, theirs.flags.iter().map(|flag| (flag.name.as_str(), None)).collect())
            }
            (Kind::Tuple(ours), Kind::Tuple(theirs)) if ours.types.len() == theirs.types.len() => {
                ours.types.iter().zip(&theirs.types).find_map(|(ours, theirs)| self.types(ours, theirs))
            }
            (Kind::Option(ours), Kind::Option(theirs)) | (Kind::List(ours), Kind::List(theirs)) => {
                self.types(ours, theirs)
            }
            (Kind::Result(ours), Kind::Result(theirs)) => {
                self.options(ours.ok.as_ref(), theirs.ok.as_ref()).or_else(|| {
                    self.options(ours.err.as_ref(), theirs.err.as_ref())
                        .map(|difference| format!("error: {difference}"))
                })
            }
            (Kind::Handle(Handle::Own(ours)), Kind::Handle(Handle::Own(theirs)))
            | (Kind::Handle(Handle::Borrow(ours)), Kind::Handle(Handle::Borrow(theirs))) => {
                self.types(&Type::Id(*ours), &Type::Id(*theirs))
            }
            _ => Some(format!("it is another {} instead of {}", theirs.as_str(), ours.as_str())),
        }
    }

    /// Resources have no structure: two are equal if the same interface defines them. Linking would
    /// accept a resource of another interface, and each call would trap.
    fn resources_differ(&self, ours: TypeId, theirs: TypeId) -> Difference {
        let (ours, theirs) = (owner(self.ours, ours), owner(self.theirs, theirs));
        if ours == theirs {
            return None;
        }
        let shown = |owner: Option<String>| owner.map_or_else(|| "no interface".to_owned(), |owner| shown(&owner));
        Some(format!("it is a resource of {} instead of {}", shown(theirs), shown(ours)))
    }

    fn members(
        &mut self,
        what: &str,
        ours: Vec<(&str, Option<&Type>)>,
        theirs: Vec<(&str, Option<&Type>)>,
    ) -> Difference {
        for (at, (name, ty)) in ours.iter().enumerate() {
            let Some((their_name, their_ty)) = theirs.get(at) else {
                return Some(format!("{what} `{name}` is missing"));
            };
            if name != their_name {
                return Some(format!("{what} `{}` is where `{name}` should be", shown(their_name)));
            }
            if let Some(difference) = self.options(*ty, *their_ty) {
                return Some(format!("{what} `{name}`: {difference}"));
            }
        }
        theirs.get(ours.len()).map(|(name, _)| format!("{what} `{}` is one too many", shown(name)))
    }

    fn options(&mut self, ours: Option<&Type>, theirs: Option<&Type>) -> Difference {
        match (ours, theirs) {
            (None, None) => None,
            (Some(ours), Some(theirs)) => self.types(ours, theirs),
            (Some(_), None) => Some("it has no value".to_owned()),
            (None, Some(_)) => Some("it has a value and should have none".to_owned()),
        }
    }
}

/// The interface that defines a type, without its version: `skysail:provider/types`.
fn owner(resolve: &Resolve, id: TypeId) -> Option<String> {
    let TypeOwner::Interface(interface) = resolve.types.get(id)?.owner else { return None };
    let interface = resolve.interfaces.get(interface)?;
    let package = &resolve.packages.get(interface.package?)?.name;
    Some(format!("{}:{}/{}", package.namespace, package.name, interface.name.as_deref()?))
}
