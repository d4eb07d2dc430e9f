package main

import (
	"fmt"
	"io"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/yaml"
)

const providerName = "simcloud"

// calls counts the calls of the provider by function, as Skysail does: the figures compare the two.
var calls = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "simcloud_provider_calls_total",
	Help:           "Calls of the provider by function",
	StabilityLevel: metrics.ALPHA,
}, []string{"function"})

func init() {
	legacyregistry.MustRegister(calls)
	cloudprovider.RegisterCloudProvider(providerName, newProvider)
}

// cloudConfig is the file behind --cloud-config.
type cloudConfig struct {
	Endpoint string `json:"endpoint"`
	Token    string `json:"token"`
}

type provider struct {
	cloud *cloud
}

var _ cloudprovider.Interface = &provider{}

func newProvider(file io.Reader) (cloudprovider.Interface, error) {
	if file == nil {
		return nil, fmt.Errorf("--cloud-config is missing: a YAML file with endpoint and token")
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("reading the cloud-config: %w", err)
	}
	var config cloudConfig
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return nil, fmt.Errorf("reading the cloud-config: %w", err)
	}
	if config.Endpoint == "" || config.Token == "" {
		return nil, fmt.Errorf("the cloud-config has to name endpoint and token")
	}
	return &provider{cloud: newCloud(config)}, nil
}

func (p *provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (p *provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	return &loadBalancers{p.cloud}, true
}
func (p *provider) Instances() (cloudprovider.Instances, bool)     { return nil, false }
func (p *provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return &instances{p.cloud}, true }
func (p *provider) Zones() (cloudprovider.Zones, bool)             { return nil, false }
func (p *provider) Clusters() (cloudprovider.Clusters, bool)       { return nil, false }
func (p *provider) Routes() (cloudprovider.Routes, bool)           { return nil, false }
func (p *provider) ProviderName() string                           { return providerName }
func (p *provider) HasClusterID() bool                             { return true }
