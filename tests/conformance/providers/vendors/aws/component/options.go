package main

import (
	"context"
	"net/http"
	"os"
	"strings"

	kubernetes "k8s.io/cloud-provider"
	"skysail.dev/provider"
	"skysail.dev/provider/cloudprovider"
)

// options say what the vendor's code does not say, such as the credential of a request.
var options = cloudprovider.Options{
	Credential:      credential,
	SetByCredential: []string{"X-Amz-Date", "X-Amz-Content-Sha256", "X-Amz-Security-Token"},
	RouteTarget:     routeTarget,
}

func init() {
	// Amazon's SDK sends nothing without keys. The host signs each request again, so these are
	// no secrets.
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "the-host", "AWS_SECRET_ACCESS_KEY": "signs", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

// credential is named after the service for which Amazon's SDK has signed the request.
func credential(request *http.Request) string {
	if strings.Contains(request.Header.Get("Authorization"), "/elasticloadbalancing/") {
		return "balancing"
	}
	return "aws"
}

// routeTarget makes the provider ID of a machine, which has the zone.
func routeTarget(ctx context.Context, aws kubernetes.Interface, machine string) (provider.Target, error) {
	zones, supported := aws.Zones()
	if !supported {
		return provider.Target{}, kubernetes.NotImplemented
	}
	zone, err := zones.GetZoneByProviderID(ctx, machine)
	return provider.Target{ProviderID: "aws:///" + zone.FailureDomain + "/" + machine}, err
}
