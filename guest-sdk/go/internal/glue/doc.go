// Package glue turns the types of the generated bindings into those of the SDK and back. Its
// subpackages have the functions that the generated exports call.
package glue
