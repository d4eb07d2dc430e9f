package provider

import (
	"net/netip"
	"slices"
	"strings"
)

// loadBalancerNameBytesMax is that of upstream's DefaultLoadBalancerName.
const loadBalancerNameBytesMax = 32

// DefaultLoadBalancerName is upstream's name of a Service's load balancer.
func (s *Service) DefaultLoadBalancerName() string {
	name := "a" + strings.ReplaceAll(s.UID, "-", "")
	return name[:min(len(name), loadBalancerNameBytesMax)]
}

// Key is `namespace/name`.
func (s *Service) Key() string { return s.Namespace + "/" + s.Name }

// Families returns the IP families of the Service; IPv4 where it names none.
func (s *Service) Families() []IPFamily {
	if len(s.IPFamilies) == 0 {
		return []IPFamily{IPv4}
	}
	return s.IPFamilies
}

// AllowedSources returns the source ranges as a sorted set; every address of the Service's families
// where the Service names no range.
func (s *Service) AllowedSources() ([]netip.Prefix, error) {
	var ranges []netip.Prefix
	for _, text := range s.SourceRanges {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, Invalid("%q is not a CIDR such as 10.0.0.0/8", strings.TrimSpace(text))
		}
		ranges = append(ranges, prefix.Masked())
	}
	if len(ranges) == 0 {
		for _, family := range s.Families() {
			everything := netip.IPv4Unspecified()
			if family == IPv6 {
				everything = netip.IPv6Unspecified()
			}
			ranges = append(ranges, netip.PrefixFrom(everything, 0))
		}
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	return slices.Compact(ranges), nil
}

// ParseProviderID returns what follows `scheme://`; Invalid for another provider ID.
func ParseProviderID(scheme, id string) (string, error) {
	found, rest, ok := strings.Cut(id, "://")
	if !ok || found != scheme || rest == "" {
		return "", Invalid("provider ID %q does not have the form %s://<id>", id, scheme)
	}
	return rest, nil
}
