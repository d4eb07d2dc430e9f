//go:build wasip1

// Package identity has the functions of the contract's interface of this name.
package identity

import (
	"skysail.dev/provider"
	"skysail.dev/provider/internal/glue"
	"skysail.dev/provider/internal/registry"
	wit "skysail.dev/provider/internal/wit/imports/skysail_provider_identity"
)

// Describe is the contract's function, as the others of this package.
func Describe() wit.Info {
	defer glue.TellPanic()
	info := registry.Identity.Describe()
	if len(info.ProviderIDSchemes) == 0 {
		info.ProviderIDSchemes = []string{info.Name}
	}
	return wit.Info{
		Name: info.Name, Version: info.Version, Description: info.Description,
		ProviderIdSchemes: info.ProviderIDSchemes, HasClusterId: info.HasClusterID,
		SerialLoadBalancers: info.SerialLoadBalancers, Extra: glue.FromMap(info.Extra),
	}
}

func CheckConfig(text string) []wit.Problem {
	defer glue.TellPanic()
	return glue.Each(registry.Identity.CheckConfig(text), func(problem provider.Problem) wit.Problem {
		severity := wit.SeverityWarning
		if problem.Severity == provider.Fatal {
			severity = wit.SeverityFatal
		}
		return wit.Problem{Severity: severity, Line: problem.Line, Key: problem.Key, Message: problem.Message}
	})
}

func Origins(text string) []string {
	defer glue.TellPanic()
	return registry.Identity.Origins(text)
}
