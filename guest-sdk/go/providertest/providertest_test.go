package providertest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"skysail.dev/provider"
	"skysail.dev/provider/providertest"
)

// request is a request of guest-sdk/requests.json.
type request struct {
	Method, URL, Credential string
	Headers                 [][2]string
}

func TestTheHostRefusesWhatTheRealOneRefuses(t *testing.T) {
	text, err := os.ReadFile("../../requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Malformed, Sent []request }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	host := providertest.New(t)
	host.Cloud = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	send := func(one request) error {
		raw := provider.RawRequest{
			Method: one.Method, URL: strings.ReplaceAll(one.URL, "HOST", "cloud.test"), Headers: one.Headers, Credential: one.Credential,
		}
		if failure := host.Send([]provider.RawRequest{raw})[0].Failure; failure != nil {
			return failure
		}
		return nil
	}
	for _, one := range file.Malformed {
		var failure *provider.Failure
		if err := send(one); !errors.As(err, &failure) || failure.Kind != provider.FailureMalformed {
			t.Errorf("%+v: %v", one, err)
		}
	}
	for _, one := range file.Sent {
		if err := send(one); err != nil {
			t.Errorf("%+v: %v", one, err)
		}
	}
	if len(file.Malformed) == 0 || len(file.Sent) == 0 {
		t.Error("the file has no requests")
	}
}
