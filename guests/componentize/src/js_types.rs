//! The types of the contract as `componentize-qjs` passes them: `guest-sdk/js/src/contract.ts`.

use std::fmt::Write as _;

use anyhow::{Result, anyhow, bail, ensure};
use wit_bindgen_core::wit_parser::{
    Docs, Function, FunctionKind, Handle, Interface, Resolve, SourceMap, Type, TypeDefKind, TypeId, TypeOwner,
};

use crate::{CONTRACT, VERSION};

/// The text of the file: a namespace for each interface.
///
/// # Errors
/// The contract has a type that JavaScript does not get from `componentize-qjs`.
pub fn js_types() -> Result<String> {
    let mut resolve = Resolve::default();
    let mut map = SourceMap::new();
    for (name, text) in CONTRACT {
        map.push_str(name, text);
    }
    resolve.push_group(map.parse().map_err(|(_, error)| anyhow!("{error}"))?)?;
    let mut text = format!(
        "// Generated from wit/v{VERSION} by `skysail-componentize js-types`. Absent values are null; a function whose\n\
         // result in the contract is `result<T, E>` returns T or throws E.\n"
    );
    for (_, interface) in &resolve.interfaces {
        Writer { resolve: &resolve, interface, text: &mut text }.interface()?;
    }
    Ok(text)
}

struct Writer<'a> {
    resolve: &'a Resolve,
    interface: &'a Interface,
    text: &'a mut String,
}

impl Writer<'_> {
    fn interface(&mut self) -> Result<()> {
        let name = camel(self.interface.name.as_deref().unwrap_or_default());
        write!(self.text, "\nexport namespace {name} {{")?;
        for (name, id) in &self.interface.types {
            self.definition(name, *id)?;
        }
        let functions: Vec<_> =
            self.interface.functions.values().filter(|function| function.kind == FunctionKind::Freestanding).collect();
        if !functions.is_empty() {
            self.text.push_str("\n  export interface Functions {\n");
            for function in functions {
                self.function(&function.name, &parameters(function), function)?;
            }
            self.text.push_str("  }\n");
        }
        self.text.push_str("}\n");
        Ok(())
    }

    fn definition(&mut self, name: &str, id: TypeId) -> Result<()> {
        let definition = self.resolve.types.get(id).ok_or_else(|| anyhow!("no type {name}"))?;
        // A name that `use` brings in is written with its namespace where it is used.
        if matches!(definition.kind, TypeDefKind::Type(Type::Id(_))) && self.is_used(id) {
            return Ok(());
        }
        self.text.push('\n');
        self.docs(&definition.docs, "  ")?;
        let name = pascal(name);
        match &definition.kind {
            TypeDefKind::Record(record) => {
                writeln!(self.text, "  export interface {name} {{")?;
                for field in &record.fields {
                    self.docs(&field.docs, "    ")?;
                    writeln!(self.text, "    {}: {};", camel(&field.name), self.type_of(&field.ty)?)?;
                }
                self.text.push_str("  }\n");
            }
            TypeDefKind::Variant(variant) => {
                write!(self.text, "  export type {name} =")?;
                for case in &variant.cases {
                    let value = match &case.ty {
                        Some(ty) => format!("; val: {}", self.type_of(ty)?),
                        None => String::new(),
                    };
                    write!(self.text, "\n    | {{ tag: \"{}\"{value} }}", case.name)?;
                }
                self.text.push_str(";\n");
            }
            TypeDefKind::Enum(cases) => {
                let cases: Vec<_> = cases.cases.iter().map(|case| format!("\"{}\"", case.name)).collect();
                writeln!(self.text, "  export type {name} = {};", cases.join(" | "))?;
            }
            TypeDefKind::Resource => {
                writeln!(self.text, "  export interface {name} {{")?;
                for function in self.interface.functions.values() {
                    if function.kind == FunctionKind::Method(id) {
                        let parameters = parameters(function);
                        self.function(function.item_name(), parameters.get(1..).unwrap_or_default(), function)?;
                    }
                }
                self.text.push_str("  }\n");
            }
            _ => writeln!(self.text, "  export type {name} = {};", self.anonymous(id)?)?,
        }
        Ok(())
    }

    /// Whether the type is another interface's under the same name.
    fn is_used(&self, id: TypeId) -> bool {
        self.resolve.types.get(id).is_some_and(|definition| {
            matches!(definition.kind, TypeDefKind::Type(Type::Id(inner))
                if self.resolve.types.get(inner).is_some_and(|inner| inner.owner != definition.owner))
        })
    }

    fn function(&mut self, name: &str, parameters: &[(String, Type)], function: &Function) -> Result<()> {
        self.docs(&function.docs, "    ")?;
        let mut list = Vec::new();
        for (name, ty) in parameters {
            list.push(format!("{}: {}", camel(name), self.type_of(ty)?));
        }
        let result = match &function.result {
            None => "void".to_owned(),
            Some(Type::Id(id)) => match self.resolve.types.get(*id).map(|definition| &definition.kind) {
                Some(TypeDefKind::Result(result)) => match &result.ok {
                    Some(ok) => self.type_of(ok)?,
                    None => "void".to_owned(),
                },
                _ => self.type_of(&Type::Id(*id))?,
            },
            Some(ty) => self.type_of(ty)?,
        };
        writeln!(self.text, "    {}({}): {result};", camel(name), list.join(", "))?;
        Ok(())
    }

    fn docs(&mut self, docs: &Docs, indent: &str) -> Result<()> {
        // The first paragraph; the rest is in the contract.
        let Some(text) = docs.contents.as_deref() else { return Ok(()) };
        let lines: Vec<_> = text.trim().lines().take_while(|line| !line.trim().is_empty()).collect();
        match lines.as_slice() {
            [] => {}
            [line] => writeln!(self.text, "{indent}/** {line} */")?,
            _ => {
                writeln!(self.text, "{indent}/**")?;
                for line in lines {
                    writeln!(self.text, "{indent} * {line}")?;
                }
                writeln!(self.text, "{indent} */")?;
            }
        }
        Ok(())
    }

    fn type_of(&self, ty: &Type) -> Result<String> {
        Ok(match ty {
            Type::Bool => "boolean".to_owned(),
            Type::String | Type::Char => "string".to_owned(),
            Type::Id(id) => self.named(*id)?,
            Type::ErrorContext => bail!("error-context is not in the contract"),
            _ => "number".to_owned(),
        })
    }

    fn named(&self, id: TypeId) -> Result<String> {
        let definition = self.resolve.types.get(id).ok_or_else(|| anyhow!("a type is missing"))?;
        let Some(name) = &definition.name else { return self.anonymous(id) };
        if let TypeDefKind::Type(Type::Id(inner)) = definition.kind
            && self.is_used(id)
        {
            return self.named(inner);
        }
        let TypeOwner::Interface(owner) = definition.owner else { bail!("the type {name} is in no interface") };
        let owner = self.resolve.interfaces.get(owner).and_then(|interface| interface.name.as_deref());
        if owner == self.interface.name.as_deref() {
            return Ok(pascal(name));
        }
        Ok(format!("{}.{}", camel(owner.unwrap_or_default()), pascal(name)))
    }

    fn anonymous(&self, id: TypeId) -> Result<String> {
        let definition = self.resolve.types.get(id).ok_or_else(|| anyhow!("a type is missing"))?;
        Ok(match &definition.kind {
            TypeDefKind::List(Type::U8) => "Uint8Array".to_owned(),
            TypeDefKind::List(element) => {
                let element = self.type_of(element)?;
                if element.contains(' ') && !element.starts_with('[') {
                    format!("({element})[]")
                } else {
                    format!("{element}[]")
                }
            }
            TypeDefKind::Option(inner) => {
                let inner = self.type_of(inner)?;
                ensure!(!inner.ends_with("| null"), "componentize-qjs passes a nested option in another shape");
                format!("{inner} | null")
            }
            TypeDefKind::Tuple(tuple) => {
                let types: Result<Vec<_>> = tuple.types.iter().map(|ty| self.type_of(ty)).collect();
                format!("[{}]", types?.join(", "))
            }
            TypeDefKind::Result(result) => {
                let case = |tag: &str, ty: &Option<Type>| -> Result<String> {
                    Ok(match ty {
                        Some(ty) => format!("{{ tag: \"{tag}\"; val: {} }}", self.type_of(ty)?),
                        None => format!("{{ tag: \"{tag}\" }}"),
                    })
                };
                format!("{} | {}", case("ok", &result.ok)?, case("err", &result.err)?)
            }
            TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => self.named(*id)?,
            TypeDefKind::Type(ty) => self.type_of(ty)?,
            other => bail!("{} is not in the contract", other.as_str()),
        })
    }
}

fn parameters(function: &Function) -> Vec<(String, Type)> {
    function.params.iter().map(|parameter| (parameter.name.clone(), parameter.ty)).collect()
}

fn pascal(name: &str) -> String {
    name.split('-')
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>()).unwrap_or_default()
        })
        .collect()
}

fn camel(name: &str) -> String {
    let name = pascal(name);
    let mut letters = name.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
