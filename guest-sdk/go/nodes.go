package provider

import (
	"encoding/json"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
)

// NodeSet is the nodes of a call. They stay with the host until they are asked for: ask for columns
// of all nodes where one field is enough.
type NodeSet interface {
	Len() int
	// Digest differs where any field of any node differs.
	Digest() uint64
	Names() []string
	// ProviderIDs has an empty string for a node without provider ID.
	ProviderIDs() []string
	Addresses(kind AddressType) [][]string
	Label(key string) []LabelValue
	// Get returns one whole node; false beyond the end.
	Get(index int) (Node, bool)
}

// LabelValue is the value of a node's label, if the node has the label.
type LabelValue struct {
	Value string
	Found bool
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
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(one, other Node) int { return strings.Compare(one.Name, other.Name) })
	return nodes
}

func (n Nodes) Len() int { return len(n) }

func (n Nodes) Digest() uint64 {
	hash := fnv.New64a()
	// Plain data, whose JSON is in a fixed order.
	_ = json.NewEncoder(hash).Encode(n)
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

func (n Nodes) Label(key string) []LabelValue {
	return column(n, func(node Node) LabelValue {
		value, found := node.Labels[key]
		return LabelValue{value, found}
	})
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
