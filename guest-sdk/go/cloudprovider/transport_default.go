//go:build !skysail_overlay

package cloudprovider

import "net/http"

// sendBy makes http.DefaultTransport send by this function. A vendor's own http.Transport is reached
// only in a build with the overlay of package net/http: see README.md.
func sendBy(send func(*http.Request) (*http.Response, error)) {
	http.DefaultTransport = roundTripper(send)
}
