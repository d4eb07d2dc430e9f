package provider_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"skysail.dev/provider"
	"skysail.dev/provider/providertest"
)

// answers is a cloud that answers every request alike.
func answers(status int, headers map[string]string, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
}

func TestAStatusIsTheErrorOfItsReaction(t *testing.T) {
	host := providertest.New(t)
	date := map[string]string{"Date": "Mon, 02 Nov 2026 10:00:00 GMT"}
	with := func(name, value string) map[string]string {
		return map[string]string{"Date": date["Date"], name: value}
	}
	for _, one := range []struct {
		status  int
		headers map[string]string
		code    provider.Code
		after   time.Duration
	}{
		{status: 400, code: provider.CodeInvalid},
		{status: 401, code: provider.CodeDenied},
		{status: 402, code: provider.CodeExhausted},
		{status: 403, code: provider.CodeDenied},
		{status: 404, code: provider.CodeNotFound},
		{status: 409, code: provider.CodeRetryAfter},
		{status: 410, code: provider.CodeNotFound},
		{status: 413, code: provider.CodeInvalid},
		{status: 413, headers: with("Retry-After", "3"), code: provider.CodeRetryAfter, after: 3 * time.Second},
		{status: 418, code: provider.CodeInternal},
		{status: 429, headers: with("Retry-After", "Mon, 02 Nov 2026 10:00:07 GMT"), code: provider.CodeRetryAfter, after: 7 * time.Second},
		{status: 429, headers: with("RateLimit-Reset", "1793613609"), code: provider.CodeRetryAfter, after: 9 * time.Second},
		{status: 429, headers: with("X-RateLimit-Reset", "1793613609000"), code: provider.CodeRetryAfter, after: 9 * time.Second},
		{status: 500, code: provider.CodeUnavailable},
		{status: 503, headers: with("RateLimit-Reset", "5"), code: provider.CodeUnavailable},
		{status: 503, headers: with("Retry-After", "5"), code: provider.CodeRetryAfter, after: 5 * time.Second},
		{status: 507, code: provider.CodeExhausted},
		{status: 200, headers: with("Content-Type", "text/html; charset=utf-8"), code: provider.CodeUnavailable},
		{status: 404, headers: with("Content-Type", "text/html"), code: provider.CodeUnavailable},
	} {
		host.Cloud = answers(one.status, one.headers, `{"error": {"message": "said"}}`)
		_, err := (&provider.API{Endpoint: "http://cloud.test"}).Get("v1", "things").Query("a", "b").Send()
		if err == nil {
			t.Errorf("status %d is no error", one.status)
			continue
		}
		got := provider.AsError(err)
		if got.Code != one.code || got.After != one.after {
			t.Errorf("status %d with %v: code %d after %v, want %d after %v", one.status, one.headers, got.Code, got.After, one.code, one.after)
		}
		begin := fmt.Sprintf("GET http://cloud.test/v1/things: status %d: ", one.status)
		if !strings.HasPrefix(got.Message, begin) {
			t.Errorf("%q does not begin with %q", got.Message, begin)
		}
	}
}

func TestWhatTheCloudSaidIsFoundInItsBodyAndBounded(t *testing.T) {
	host := providertest.New(t)
	for body, said := range map[string]string{
		`{"message": "one"}`:                     "one",
		`{"error": {"title": "two"}}`:            "two",
		`{"itemNotFound": {"message": "three"}}`: "three",
		`{"error": "four"}`:                      "four",
		`"five"`:                                 "five",
		` plain `:                                "plain",
		strings.Repeat("ä", 200):                 strings.Repeat("ä", 150) + "…",
		`{"code": 1}`:                            `{"code": 1}`,
		`{"error": {"message": "six", "code": "x"}, "a": 1}`: "six",
	} {
		host.Cloud = answers(400, nil, body)
		_, err := (&provider.API{Endpoint: "http://c"}).Get().Send()
		if want := "GET http://c: status 400: " + said; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

func TestARequestIsEscapedAndNamesItsCredential(t *testing.T) {
	host := providertest.New(t)
	var credential string
	host.Cloud = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { credential = r.Header.Get("Skysail-Credential") })
	api := &provider.API{Endpoint: "http://cloud.test/base/", Credential: "api"}
	if _, err := api.Delete("a/b", "c d").Query("q", "x&y=z").QueryUnlessEmpty("none", "").Send(); err != nil {
		t.Fatal(err)
	}
	// Of a segment "..", the path stays, and the host refuses it.
	if _, err := api.Delete("a", "..").Send(); provider.AsError(err).Code != provider.CodeInternal {
		t.Errorf("got %v", err)
	}
	want := []string{"DELETE http://cloud.test/base/a%2Fb/c%20d?q=x%26y%3Dz", "DELETE http://cloud.test/base/a/%2E%2E"}
	if got := host.Requests(); !reflect.DeepEqual(got, want) || credential != "api" {
		t.Errorf("got %v with the credential %q, want %v", got, credential, want)
	}
	if origin := api.Origin(); origin != "http://cloud.test" {
		t.Errorf("got the origin %s", origin)
	}
}

func TestARequestIsTheBeginningOfSeveral(t *testing.T) {
	host := providertest.New(t)
	host.Cloud = answers(200, nil, "{}")
	base := (&provider.API{Endpoint: "http://c"}).Get("a").Query("q", "x y")
	for _, cursor := range []string{"", "2"} {
		if _, err := base.QueryUnlessEmpty("cursor", cursor).Header("h", cursor).Send(); err != nil {
			t.Error(err)
		}
	}
	want := []string{"GET http://c/a?q=x%20y", "GET http://c/a?q=x%20y&cursor=2"}
	if got := host.Requests(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if _, err := (&provider.API{Endpoint: "http://c"}).Delete("servers", "").Send(); err == nil || len(host.Requests()) != 2 {
		t.Errorf("an empty segment: got %v", err)
	}
}

func TestAnAnswerWithoutJSONIsNoEmptyList(t *testing.T) {
	host := providertest.New(t)
	for _, body := range []string{"", "null", " null\n", "{}", "<html>"} {
		host.Cloud = answers(200, nil, body)
		response, err := (&provider.API{Endpoint: "http://c"}).Get("a").Send()
		if err != nil {
			t.Fatal(err)
		}
		var list []int
		if err := response.JSON(&list); err == nil || provider.AsError(err).Code != provider.CodeInternal {
			t.Errorf("%q: got %v", body, err)
		}
	}
}

func TestABodyThatIsNoJSONIsNotSentAndTheOtherRequestsAre(t *testing.T) {
	host := providertest.New(t)
	host.Cloud = answers(200, nil, "{}")
	api := &provider.API{Endpoint: "http://c"}
	results := provider.SendAll(api.Post("a").JSON(func() {}), api.Get("b"))
	if results[0].Err == nil || results[1].Err != nil || !reflect.DeepEqual(host.Requests(), []string{"GET http://c/b"}) {
		t.Errorf("got %v, sent %v", results, host.Requests())
	}
}

func TestTheWorstErrorOfSeveralRequestsIsKept(t *testing.T) {
	host := providertest.New(t)
	host.Cloud = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status int
		fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.Header().Set("Retry-After", strings.TrimLeft(r.URL.RawQuery, "after="))
		w.WriteHeader(status)
	})
	api := &provider.API{Endpoint: "http://c"}
	after := func(seconds string) *provider.Request { return api.Get("429").Query("after", seconds) }
	_, err := provider.SendEvery(api.Get("200"), api.Get("500"), after("1"), after("30"), after("2"))
	if got := provider.AsError(err); got.Code != provider.CodeRetryAfter || got.After != 30*time.Second {
		t.Errorf("got %+v", got)
	}
	_, err = provider.SendEvery(after("30"), api.Get("403"), api.Get("400"))
	if got := provider.AsError(err); got.Code != provider.CodeDenied {
		t.Errorf("got %+v", got)
	}
	if responses, err := provider.SendEvery(api.Get("200"), api.Get("201")); err != nil || len(responses) != 2 {
		t.Errorf("got %v, %v", responses, err)
	}
}

func TestAnErrorKeepsItsReactionInAChain(t *testing.T) {
	err := fmt.Errorf("cannot create an address: %w", provider.RetryAfter(2*time.Second, "busy"))
	want := provider.Error{Code: provider.CodeRetryAfter, Message: "cannot create an address: busy", After: 2 * time.Second}
	if got := provider.AsError(err); *got != want {
		t.Errorf("got %+v", got)
	}
	if got := provider.AsError(errors.New("no contract error")); got.Code != provider.CodeInternal {
		t.Errorf("got %+v", got)
	}
	for want, err := range map[provider.Code]error{
		provider.CodeUnavailable: errors.Join(provider.NotFound("no flavor"), provider.Unavailable("503")),
		provider.CodeInternal:    fmt.Errorf("x: %w", errors.Join(errors.New("odd"), provider.NotFound("no flavor"))),
		provider.CodeNotFound:    errors.Join(provider.NotFound("one"), provider.NotFound("other")),
		provider.CodeDenied:      fmt.Errorf("x: %w", &provider.Failure{Kind: provider.FailureForbidden}),
	} {
		if got := provider.AsError(err); got.Code != want || got.Message != err.Error() {
			t.Errorf("%v: got %+v", err, got)
		}
	}
	if provider.AsError(nil) != nil || provider.IsNotFound(nil) {
		t.Error("nil is an error")
	}
	if !provider.IsNotFound(fmt.Errorf("x: %w", provider.NotFound("y"))) || provider.Absent(provider.NotFound("y")) != nil {
		t.Error("NotFound is not found")
	}
	if provider.Absent(provider.Denied("y")) == nil {
		t.Error("a denial counts as absent")
	}
}

func TestAListThatDoesNotEndIsAnError(t *testing.T) {
	all, err := provider.Pages(func(cursor string) ([]int, string, error) {
		return []int{len(cursor)}, map[string]string{"": "a", "a": "bb"}[cursor], nil
	})
	if err != nil || !reflect.DeepEqual(all, []int{0, 1, 2}) {
		t.Errorf("got %v, %v", all, err)
	}
	if _, err := provider.Pages(func(string) ([]int, string, error) { return nil, "a", nil }); err == nil {
		t.Error("a repeated cursor is no error")
	}
}

func TestAListByOffsetIsReadAgainWhereAnEntryMoved(t *testing.T) {
	same := func(id string) string { return id }
	read := func(list []string, before func(page int, list *[]string)) ([]string, error) {
		pages := 0
		return provider.OffsetPages(same, func(offset int) ([]string, int, error) {
			before(pages, &list)
			pages++
			end := min(offset+2, len(list))
			return list[min(offset, end):end], len(list), nil
		})
	}
	for _, one := range []struct {
		before func(page int, list *[]string)
		want   []string
	}{
		{func(int, *[]string) {}, []string{"a", "b", "c", "d", "e"}},
		{func(page int, list *[]string) {
			if page == 1 {
				*list = (*list)[1:]
			}
		}, []string{"b", "c", "d", "e"}},
		// Created in front and deleted at the end: the total stays, and "b" comes twice.
		{func(page int, list *[]string) {
			if page == 1 {
				*list = []string{"new", "a", "b", "c", "d"}
			}
		}, []string{"new", "a", "b", "c", "d"}},
	} {
		if got, err := read([]string{"a", "b", "c", "d", "e"}, one.before); err != nil || !reflect.DeepEqual(got, one.want) {
			t.Errorf("got %v, %v, want %v", got, err, one.want)
		}
	}
	if got, err := read(nil, func(int, *[]string) {}); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	changes := func(page int, list *[]string) { *list = append(*list, fmt.Sprint(page)) }
	if _, err := read([]string{"a", "b", "c"}, changes); provider.AsError(err).Code != provider.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	if _, err := provider.OffsetPages(same, func(offset int) ([]string, int, error) { return []string{fmt.Sprint(offset)}, 1 << 40, nil }); err == nil {
		t.Error("an endless list is no error")
	}
}

func TestAResponseOfAnyStatusCanBeRead(t *testing.T) {
	host := providertest.New(t)
	host.Cloud = answers(409, nil, `{"taken": true}`)
	api := &provider.API{Endpoint: "http://c", Judge: func(*provider.Response) error { return provider.Internal("judged") }}
	if response, err := api.Get("a").SendAny(); err != nil || response.Status != 409 || string(response.Body) != `{"taken": true}` {
		t.Errorf("got %v, %v", response, err)
	}
	if _, err := api.Get("").SendAny(); provider.AsError(err).Code != provider.CodeInternal {
		t.Errorf("got %v", err)
	}
	host.Cloud = nil
	if _, err := api.Get("a").SendAny(); provider.AsError(err).Code != provider.CodeUnavailable {
		t.Errorf("got %v", err)
	}
}

func TestALinkIsFollowedWithinTheOriginOnly(t *testing.T) {
	host := providertest.New(t)
	host.Cloud = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("page") == "" {
			w.Header().Set("Link", `<http://c/v1/a?page=1>; rel="prev", </v1/a?fields=id,name&page=2&x=%2F>; title=x; REL = "last next", </>; rel=up`)
		}
		io.WriteString(w, "[]")
	})
	api := &provider.API{Endpoint: "http://c/v1", Credential: "api"}
	response, err := api.Get("a").Send()
	if err != nil {
		t.Fatal(err)
	}
	last, err := api.Follow(response.NextLink()).Send()
	if err != nil || last.NextLink() != "" {
		t.Errorf("got %v, %v", last, err)
	}
	want := []string{"GET http://c/v1/a", "GET http://c/v1/a?fields=id,name&page=2&x=%2F"}
	for _, link := range []string{"http://evil/v1", "https://c/v1", "//evil/", "http://c:81/", "http://u@c/", ":", "http://c.evil/", ""} {
		if _, err := api.Follow(link).Send(); provider.AsError(err).Code != provider.CodeInternal {
			t.Errorf("%s: got %v", link, err)
		}
	}
	if got := host.Requests(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAValueIsParsedAndAKeyMayStandSeveralTimes(t *testing.T) {
	ini := provider.ParseINI("[A]\nn = 7\nbad = x\nzone = a\nZone = b\n")
	if n, found := provider.ReadINI(ini, "A", "n", strconv.Atoi); n != 7 || !found {
		t.Errorf("got %d, %t", n, found)
	}
	if _, found := provider.ReadINI(ini, "A", "absent", strconv.Atoi); found {
		t.Error("an absent key is found")
	}
	if _, found := provider.ReadINI(ini, "A", "bad", strconv.Atoi); found {
		t.Error("a bad value is found")
	}
	if zones := ini.List("A", "zone"); !reflect.DeepEqual(zones, []string{"a", "b"}) {
		t.Errorf("got %v", zones)
	}
	problems := ini.Problems()
	if len(problems) != 1 || problems[0].Line != 3 || problems[0].Key != "A.bad" || !strings.Contains(problems[0].Message, `"x"`) {
		t.Errorf("got %v", problems)
	}
}

func TestAConfigIsReadAndEveryProblemNamesLineAndKey(t *testing.T) {
	ini := provider.ParseINI("top = 1\n# c\n[Global] ; c\n Region=  eu west ; c\nurl = http://x/#frag\nq = \"a # \\\"b\\\"\" # c\n")
	for _, one := range [][3]string{{"", "top", "1"}, {"global", "region", "eu west"}, {"Global", "URL", "http://x/#frag"}, {"Global", "q", `a # "b"`}} {
		if got := ini.Required(one[0], one[1]); got != one[2] {
			t.Errorf("%v: got %q", one, got)
		}
	}
	if problems := ini.Problems(); problems != nil {
		t.Errorf("got %v", problems)
	}
	ini = provider.ParseINI("[Global]\nempty =\ntwice = 1\ntwice = 2\nextra = 1\nnothing\nq = \"a\n[oops\n")
	ini.Required("Global", "empty")
	ini.Required("Global", "absent")
	ini.Optional("Global", "twice")
	var got []string
	for _, problem := range ini.Problems() {
		got = append(got, fmt.Sprintf("%d %s", problem.Line, problem.Key))
	}
	want := []string{"0 Global.absent", "2 Global.empty", "4 Global.twice", "5 Global.extra", "6 nothing", "7 Global.q", "8 "}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWarningsDoNotPreventACallAndAFatalProblemDoes(t *testing.T) {
	host := providertest.New(t)
	host.CloudConfig = "text"
	parse := func(severity provider.Severity) func(string) (string, []provider.Problem) {
		return func(text string) (string, []provider.Problem) {
			return text, []provider.Problem{{Severity: severity, Line: 2, Key: "a.b", Message: "odd"}}
		}
	}
	if text, err := provider.LoadConfig(parse(provider.Warning)); text != "text" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	_, err := provider.LoadConfig(parse(provider.Fatal))
	if got := provider.AsError(err); got.Code != provider.CodeInvalid || got.Message != "cloud-config, line 2, a.b: odd" {
		t.Errorf("got %+v", got)
	}
}

func TestAServiceIsReadAsUpstreamDoes(t *testing.T) {
	service := &provider.Service{Namespace: "default", Name: "web", UID: "0a1b2c3d-4e5f-6789-abcd-ef0123456789"}
	if got := service.DefaultLoadBalancerName(); got != "a0a1b2c3d4e5f6789abcdef012345678" {
		t.Errorf("got the name %s", got)
	}
	for want, ranges := range map[string][]string{
		"[0.0.0.0/0]":  nil,
		"[10.0.0.0/8]": {"10.1.2.3/8", " 10.0.0.0/8"},
	} {
		service.SourceRanges = ranges
		if got, err := service.AllowedSources(); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%v: got %v, %v", ranges, got, err)
		}
	}
	service.SourceRanges = []string{"10.0.0.0"}
	if _, err := service.AllowedSources(); provider.AsError(err).Code != provider.CodeInvalid {
		t.Errorf("got %v", err)
	}
	service.SourceRanges, service.IPFamilies = nil, []provider.IPFamily{provider.IPv6, provider.IPv4}
	if got, _ := service.AllowedSources(); len(got) != 2 {
		t.Errorf("got %v", got)
	}
	for _, id := range []string{"aws://i-1", "simcloud:/i-1", "simcloud://", "i-1", ""} {
		if _, err := provider.ParseProviderID("simcloud", id); err == nil {
			t.Errorf("%q is read", id)
		}
	}
	if id, err := provider.ParseProviderID("simcloud", "simcloud://zone-a/i-1"); id != "zone-a/i-1" || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
}

func TestNodesAreSortedAndTheirColumnsHaveOneEntryEach(t *testing.T) {
	address := func(kind provider.AddressType, text string) provider.NodeAddress {
		return provider.NodeAddress{Type: kind, Address: text}
	}
	nodes := provider.NewNodes(
		provider.Node{Name: "b", ProviderID: "x://2", Addresses: []provider.NodeAddress{
			address(provider.InternalIP, "fd00::1"), address(provider.InternalIP, "10.0.0.2"), address(provider.InternalIP, "10.0.0.3")}},
		provider.Node{Name: "a", Labels: map[string]string{"l": "v"}},
	)
	if !reflect.DeepEqual(nodes.Names(), []string{"a", "b"}) || !reflect.DeepEqual(nodes.ProviderIDs(), []string{"", "x://2"}) ||
		!reflect.DeepEqual(nodes.Label("l"), []provider.LabelValue{{Value: "v", Found: true}, {}}) {
		t.Errorf("got %v", nodes)
	}
	if got := provider.InternalIPs(nodes, provider.IPv4); !reflect.DeepEqual(got, []string{"10.0.0.2"}) {
		t.Errorf("got %v", got)
	}
	if got := provider.InternalIPs(nodes, provider.IPv6); !reflect.DeepEqual(got, []string{"fd00::1"}) {
		t.Errorf("got %v", got)
	}
	if _, found := nodes.Get(2); found {
		t.Error("there is a third node")
	}
	other := provider.NewNodes(nodes...)
	if nodes.Digest() != other.Digest() {
		t.Error("equal sets have different digests")
	}
	if other[0].Ready = true; nodes.Digest() == other.Digest() {
		t.Error("another field has the same digest")
	}
}

func TestAValueSurvivesTheCallAndConcurrentChangesAreKept(t *testing.T) {
	host := providertest.New(t)
	if _, found := provider.CacheGet[int]("n"); found {
		t.Error("a value that nobody set")
	}
	loads := 0
	for range 2 {
		value, err := provider.Cached("n", time.Minute, func() (int, error) { loads++; return 1, nil })
		if value != 1 || err != nil || loads != 1 {
			t.Errorf("got %d, %v after %d loads", value, err, loads)
		}
	}
	tries := 0
	value, kept := provider.CacheUpdate("n", time.Minute, func(value int, _ bool) int {
		if tries++; tries == 1 {
			host.CacheSet("n", []byte("10"), time.Minute) // another call
		}
		return value + 1
	})
	if value != 11 || !kept || tries != 2 {
		t.Errorf("got %d, %v after %d tries", value, kept, tries)
	}
	if _, err := provider.Cached("m", time.Minute, func() (int, error) { return 0, provider.Denied("no") }); err == nil {
		t.Error("a failed load is no error")
	}
	if _, found := provider.CacheGet[int]("m"); found {
		t.Error("a failed load is kept")
	}
}

func TestLogLinesHaveTheirFieldsAndGroups(t *testing.T) {
	host := providertest.New(t)
	logger := slog.New(provider.LogHandler()).With("a", 1).WithGroup("g").With("b", 2)
	logger.Warn("text", "c", 3, slog.Group("h", "d", 4))
	provider.WarningEvent("Reason", "%d left", 5)
	if got, want := host.Logs(), []string{"WARN text a=1 g.b=2 g.c=3 g.h.d=4"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want := []providertest.Event{{Warning: true, Reason: "Reason", Message: "5 left"}}
	if got := host.Events(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestTheTestHostRefusesWhatTheHostRefuses(t *testing.T) {
	host := providertest.New(t)
	host.Cloud = answers(200, nil, "{}")
	with := func(credential string) *provider.API {
		return &provider.API{Endpoint: "http://c", Credential: credential}
	}
	for _, request := range []*provider.Request{
		with("").Get("a").Header("Cookie", "x"), with("api").Get("a").Header("Authorization", "x"),
		(&provider.API{Endpoint: "http://user:password@c"}).Get("a"), (&provider.API{Endpoint: "c"}).Get("a"),
	} {
		_, err := request.Send()
		var failure *provider.Failure
		if !errors.As(err, &failure) || failure.Kind != provider.FailureMalformed || provider.AsError(err).Code != provider.CodeInternal {
			t.Errorf("%v: got %v", request.Raw(), err)
		}
	}
	host.Fail = func(provider.RawRequest) *provider.Failure { return &provider.Failure{Kind: provider.FailureTimeout} }
	_, err := with("").Get("a").Send()
	if want := "GET http://c/a: the cloud did not answer in time"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestACallOfTheHostOutsideOfTheSandboxSaysWhatToDo(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "providertest.New(t)") {
			t.Errorf("got %s", text)
		}
	}()
	provider.Config()
}
