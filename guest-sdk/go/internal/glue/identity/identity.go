//go:build wasip1

// Package identity has the functions of the contract's interface of this name.
package identity

import (
	"maps"
	"strconv"

	"skysail.dev/provider"
	"skysail.dev/provider/internal/glue"
	"skysail.dev/provider/internal/registry"
	wit "skysail.dev/provider/internal/wit/imports/skysail_provider_identity"
)

// Describe is the contract's function, as the others of this package.
func Describe() wit.Info {
	defer glue.Enter()()
	info := registry.Identity.Describe()
	if info.ProviderIDSchemes == nil {
		info.ProviderIDSchemes = []string{info.Name}
	}
	extra := maps.Clone(info.Extra)
	if info.PageNodes > 0 {
		if extra == nil {
			extra = map[string]string{}
		}
		extra["page-nodes"] = strconv.Itoa(info.PageNodes)
	}
	return wit.Info{
		Name: glue.Text(info.Name), Version: glue.Text(info.Version), Description: glue.Text(info.Description),
		ProviderIdSchemes: glue.Each(info.ProviderIDSchemes, glue.Text), HasClusterId: !info.WithoutClusterID,
		SerialLoadBalancers: info.SerialLoadBalancers, Extra: glue.FromMap(extra),
	}
}

func CheckConfig(text string) []wit.Problem {
	defer glue.Enter()()
	return glue.Each(registry.Identity.CheckConfig(text), func(problem provider.Problem) wit.Problem {
		severity := wit.SeverityFatal
		if problem.Severity == provider.Warning {
			severity = wit.SeverityWarning
		}
		return wit.Problem{
			Severity: severity, Line: problem.Line, Key: glue.Text(problem.Key), Message: glue.Text(problem.Message),
		}
	})
}

func Origins(text string) []string {
	defer glue.Enter()()
	return glue.Each(registry.Identity.Origins(text), glue.Text)
}
