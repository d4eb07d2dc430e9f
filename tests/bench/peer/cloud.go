package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// The largest page size of the cloud.
	pageEntries = "500"
	// Zones rarely change.
	zonesTTL       = 10 * time.Minute
	requestTimeout = 30 * time.Second
	// The default of 2 would close connections while workers wait for new ones.
	idleConnections = 100
)

// errNotFound is the cloud's 404.
var errNotFound = errors.New("not found in the cloud")

// cloud is the cloud's API, as far as the provider uses it; openapi.json of the
// simulated cloud describes it.
type cloud struct {
	endpoint string
	token    string
	client   *http.Client

	zonesLock sync.Mutex
	zones     map[string]string
	zonesAt   time.Time
}

type machine struct {
	ID             string  `json:"id"`
	Name           string  `json:"name"`
	Zone           string  `json:"zone"`
	Type           string  `json:"type"`
	PrivateAddress string  `json:"private_address"`
	PublicAddress  *string `json:"public_address"`
	State          string  `json:"state"`
}

type zone struct {
	Name   string `json:"name"`
	Region string `json:"region"`
}

func newCloud(config cloudConfig) *cloud {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = idleConnections
	client := &http.Client{Transport: transport, Timeout: requestTimeout}
	return &cloud{endpoint: config.Endpoint, token: config.Token, client: client}
}

// send sends one request and reads the answer into out, unless that is nil.
func (c *cloud) send(ctx context.Context, method, path string, idempotencyKey string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.endpoint+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", idempotencyKey)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// Read to the end, so that the connection can be reused.
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s %s: %w: %s", method, path, errNotFound, text)
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// list returns every record that matches the filters, from all pages.
func list[T any](ctx context.Context, c *cloud, path string, filters url.Values) ([]T, error) {
	filters.Set("limit", pageEntries)
	var all []T
	for {
		var page struct {
			Items []T     `json:"items"`
			Next  *string `json:"next"`
		}
		if err := c.send(ctx, http.MethodGet, path+"?"+filters.Encode(), "", nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == nil {
			return all, nil
		}
		filters.Set("cursor", *page.Next)
	}
}

// region returns the region of a zone; zones are cached for a while.
func (c *cloud) region(ctx context.Context, name string) (string, error) {
	c.zonesLock.Lock()
	defer c.zonesLock.Unlock()
	if time.Since(c.zonesAt) > zonesTTL {
		zones, err := list[zone](ctx, c, "/v1/zones", url.Values{})
		if err != nil {
			return "", err
		}
		c.zones, c.zonesAt = map[string]string{}, time.Now()
		for _, zone := range zones {
			c.zones[zone.Name] = zone.Region
		}
	}
	return c.zones[name], nil
}
