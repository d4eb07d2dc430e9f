//! Components of componentize-qjs, which drop the handle of a borrowed node set too late.
//!
//! A function has to drop each handle that it borrowed before it returns. The runtime of
//! componentize-qjs (0.4.5 and before) does so in the post-return function, and the call traps:
//! "borrow handles still remain at the end of the call". Here the handle is dropped as soon as the
//! function of JavaScript has returned, and the runtime's own drop has no effect. A component
//! without borrowed handles stays as it is.

use anyhow::{Context as _, Result, ensure};
use wasm_encoder::{
    CodeSection, Component, ConstExpr, ElementSection, Function, FunctionSection, GlobalSection, GlobalType, Module,
    RawSection, SectionId, ValType,
    reencode::{Error, Reencode, utils},
};
use wasmparser::{CodeSectionReader, ElementSectionReader, FunctionSectionReader, Parser, Payload, TypeRef};

/// Passes an argument of this type to the function of JavaScript.
const PUSH: &str = "wit_dylib_push_borrow";
/// Calls the function of JavaScript.
const CALL: &str = "wit_dylib_export_call";
/// Drops the handle.
const DROP: &str = "[resource-drop]node-set";

/// The component with each handle dropped in time.
///
/// # Errors
/// The bytes are no component, or its module of bindings is not as expected.
pub(crate) fn drop_borrows_in_time(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut component = Component::new();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        if depth == 0
            && let Some((id, range)) = payload.as_section()
        {
            let range = usize::try_from(range.start)?..usize::try_from(range.end)?;
            let data = bytes.get(range).context("a section is cut off")?;
            let changed = match payload {
                Payload::ModuleSection { .. } => patched(data)?,
                Payload::ComponentSection { .. } => Some(drop_borrows_in_time(data)?),
                _ => None,
            };
            component.section(&RawSection { id, data: changed.as_deref().unwrap_or(data) });
        }
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(component.finish())
}

/// The module of the bindings; none for another module, or one without node sets.
fn patched(module: &[u8]) -> Result<Option<Vec<u8>>> {
    let (mut functions, mut defined, mut globals) = (Vec::new(), 0, 0);
    let mut has_globals = false;
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import?;
                    match import.ty {
                        TypeRef::Func(ty) => functions.push((import.name.to_owned(), ty)),
                        TypeRef::Global(_) => globals += 1,
                        _ => {}
                    }
                }
            }
            Payload::FunctionSection(section) => defined = section.count(),
            Payload::GlobalSection(_) => has_globals = true,
            _ => {}
        }
    }
    let find = |name: &str| {
        let found = functions.iter().zip(0..).find(|((known, _), _)| known == name);
        found.map(|((_, ty), index)| Imported { index, ty: *ty })
    };
    let (Some(push), Some(call), Some(drop)) = (find(PUSH), find(CALL), find(DROP)) else { return Ok(None) };
    ensure!(
        !has_globals,
        "the module of the bindings has variables of its own: the component has been through skysail-componentize \
         already, or is of an unknown version of componentize-qjs"
    );
    let mut output = Module::new();
    let first = u32::try_from(functions.len())? + defined;
    let mut patch = Patch { push, call, drop, first, held: globals, within: Within::Other };
    patch.parse_core_module(&mut output, Parser::new(0), module)?;
    Ok(Some(output.finish()))
}

#[derive(Clone, Copy)]
struct Imported {
    index: u32,
    ty: u32,
}

/// Three functions more, from `first` on: push, call and a drop without effect.
struct Patch {
    push: Imported,
    call: Imported,
    drop: Imported,
    first: u32,
    /// The variable of the handle; 0 for none.
    held: u32,
    within: Within,
}

enum Within {
    Code,
    Elements,
    Other,
}

impl Reencode for Patch {
    type Error = std::convert::Infallible;

    fn function_index(&mut self, index: u32) -> Result<u32, Error> {
        Ok(match self.within {
            Within::Code if index == self.push.index => self.first,
            Within::Code if index == self.call.index => self.first + 1,
            Within::Elements if index == self.drop.index => self.first + 2,
            _ => index,
        })
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_function_section(self, functions, section)?;
        for ty in [self.push.ty, self.call.ty, self.drop.ty] {
            functions.function(ty);
        }
        Ok(())
    }

    fn intersperse_section_hook(
        &mut self,
        module: &mut Module,
        after: Option<SectionId>,
        before: Option<SectionId>,
    ) -> Result<(), Error> {
        let is_behind = |id: Option<SectionId>| id.is_none_or(|id| u8::from(id) > u8::from(SectionId::Global));
        let is_before = |id: Option<SectionId>| id.is_some_and(|id| u8::from(id) <= u8::from(SectionId::Global));
        if is_behind(before) && is_before(after) {
            let mut globals = GlobalSection::new();
            let ty = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
            globals.global(ty, &ConstExpr::i32_const(0));
            module.section(&globals);
        }
        Ok(())
    }

    fn parse_element_section(
        &mut self,
        elements: &mut ElementSection,
        section: ElementSectionReader<'_>,
    ) -> Result<(), Error> {
        self.within = Within::Elements;
        utils::parse_element_section(self, elements, section)?;
        self.within = Within::Other;
        Ok(())
    }

    fn parse_code_section(&mut self, code: &mut CodeSection, section: CodeSectionReader<'_>) -> Result<(), Error> {
        self.within = Within::Code;
        utils::parse_code_section(self, code, section)?;
        self.within = Within::Other;
        let mut push = Function::new([]);
        push.instructions().local_get(2).global_set(self.held);
        push.instructions().local_get(0).local_get(1).local_get(2).call(self.push.index).end();
        let mut call = Function::new([]);
        call.instructions().local_get(0).local_get(1).call(self.call.index).global_get(self.held);
        call.instructions().if_(wasm_encoder::BlockType::Empty).global_get(self.held).call(self.drop.index);
        call.instructions().i32_const(0).global_set(self.held).end().end();
        let mut drop = Function::new([]);
        drop.instructions().end();
        for function in [push, call, drop] {
            code.function(&function);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wasmparser::{ElementItems, Operator, Parser, Payload};

    use super::drop_borrows_in_time;

    /// A component within a component, with a module of bindings that has these definitions more.
    fn bindings(more: &str) -> Vec<u8> {
        let text = format!(
            r#"(component (component (core module
                (import "env" "wit_dylib_push_borrow" (func $push (param i32 i32 i32)))
                (import "env" "wit_dylib_export_call" (func $call (param i32 i32)))
                (import "skysail:provider/types@0.1.0" "[resource-drop]node-set" (func $drop (param i32)))
                (import "env" "table" (table 0 funcref))
                {more}
                (elem (i32.const 0) func $drop $push)
                (func (export "describe")
                    (call $push (i32.const 1) (i32.const 2) (i32.const 3))
                    (call $call (i32.const 4) (i32.const 5))
                    (call $drop (i32.const 6))))))"#
        );
        wat::parse_str(text).unwrap()
    }

    /// The functions that are called, function by function, and the functions of the table.
    fn calls(component: &[u8]) -> (Vec<Vec<u32>>, Vec<u32>) {
        let (mut functions, mut table) = (Vec::new(), Vec::new());
        for payload in Parser::new(0).parse_all(component) {
            match payload.unwrap() {
                Payload::CodeSectionEntry(body) => {
                    let called = body.get_operators_reader().unwrap().into_iter().filter_map(|operator| {
                        if let Operator::Call { function_index } = operator.unwrap() {
                            Some(function_index)
                        } else {
                            None
                        }
                    });
                    functions.push(called.collect());
                }
                Payload::ElementSection(section) => {
                    for element in section {
                        let ElementItems::Functions(items) = element.unwrap().items else { continue };
                        table.extend(items.into_iter().map(Result::unwrap));
                    }
                }
                _ => {}
            }
        }
        (functions, table)
    }

    #[test]
    fn a_handle_is_dropped_after_the_call_and_by_the_runtime_no_more() {
        let before = bindings("");
        assert_eq!(calls(&before), (vec![vec![0, 1, 2]], vec![2, 0]));
        let after = drop_borrows_in_time(&before).unwrap();
        // 3 is describe; 4 pushes, 5 calls and drops, 6 has no effect.
        assert_eq!(calls(&after), (vec![vec![4, 5, 2], vec![0], vec![1, 2], vec![]], vec![6, 0]));
    }

    #[test]
    fn a_component_without_node_sets_stays_as_it_is() {
        let component = wat::parse_str(r#"(component (core module (func (export "a"))) (component))"#).unwrap();
        assert_eq!(drop_borrows_in_time(&component).unwrap(), component);
    }

    #[test]
    fn bindings_of_an_unknown_version_are_refused() {
        let error = drop_borrows_in_time(&bindings("(global i32 (i32.const 0))")).unwrap_err();
        assert!(error.to_string().contains("unknown version of componentize-qjs"), "{error}");
        let once = drop_borrows_in_time(&bindings("")).unwrap();
        let error = drop_borrows_in_time(&once).unwrap_err();
        assert!(error.to_string().contains("has been through skysail-componentize already"), "{error}");
    }
}
