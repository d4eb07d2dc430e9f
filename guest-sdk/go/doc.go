// Package provider is the SDK for Skysail providers in Go.
//
// A provider is a type with the methods of [Identity] and of the interfaces that its cloud has. The
// packages below export/ make each of them a part of the component:
//
//	package main
//
//	import (
//		"skysail.dev/provider/export/identity"
//		"skysail.dev/provider/export/instances"
//	)
//
//	func init() {
//		identity.Export(cloud{})
//		instances.Export(cloud{})
//	}
//
//	func main() {}
//
// A component serves one call and ends: package variables do not survive the call, [CacheSet] keeps
// what should. Requests go through the host, by [API] or by package httptransport; there are no
// sockets and no files, and the environment is empty. An error without a [Code] counts as
// [Internal]. A panic ends the call, and its text and place stand in the error of the call.
package provider
