package provider

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
)

// NodeSet is the nodes of a call. They stay with the host until they are asked for: ask for columns
// of all nodes where one field is enough.
type NodeSet interface {
	Len() int
	// Digest is equal for equal sets: names, provider IDs and addresses.
	Digest() uint64
	Names() []string
	// ProviderIDs has an empty string for a node without provider ID.
	ProviderIDs() []string
	Addresses(kind AddressType) [][]string
	// Label has an empty string for a node without the label.
	Label(key string) []string
	// Get returns one whole node; false beyond the end.
	Get(index int) (Node, bool)
}

// InternalIPs returns the first internal IP of this family of each node that has one.
func InternalIPs(nodes NodeSet, family IPFamily) []string {
	var found []string
	for _, addresses := range nodes.Addresses(InternalIP) {
		for _, text := range addresses {
			if address, err := netip.ParseAddr(text); err == nil && address.Is4() == (family == IPv4) {
				found = append(found, text)
				break
			}
		}
	}
	return found
}

// Nodes is a [NodeSet] of nodes in memory, for tests: sorted by name, as the host's.
type Nodes []Node

// NewNodes returns the nodes, sorted.
func NewNodes(nodes ...Node) Nodes {
	slices.SortFunc(nodes, func(one, other Node) int { return strings.Compare(one.Name, other.Name) })
	return nodes
}

func (n Nodes) Len() int { return len(n) }

func (n Nodes) Digest() uint64 {
	hash := fnv.New64a()
	part := func(text string) {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		hash.Write([]byte(text))
	}
	for _, node := range n {
		part(node.Name)
		part(node.ProviderID)
		for _, address := range node.Addresses {
			part(string(address.Type))
			part(address.Address)
		}
	}
	return hash.Sum64()
}

func (n Nodes) Names() []string {
	return column(n, func(node Node) string { return node.Name })
}

func (n Nodes) ProviderIDs() []string {
	return column(n, func(node Node) string { return node.ProviderID })
}

func (n Nodes) Addresses(kind AddressType) [][]string {
	return column(n, func(node Node) (found []string) {
		for _, address := range node.Addresses {
			if address.Type == kind {
				found = append(found, address.Address)
			}
		}
		return found
	})
}

func (n Nodes) Label(key string) []string {
	return column(n, func(node Node) string { return node.Labels[key] })
}

func (n Nodes) Get(index int) (Node, bool) {
	if index < 0 || index >= len(n) {
		return Node{}, false
	}
	return n[index], true
}

func column[T any](nodes []Node, of func(Node) T) []T {
	values := make([]T, 0, len(nodes))
	for _, node := range nodes {
		values = append(values, of(node))
	}
	return values
}
