package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// RawRequest is a request as the contract has it. Most providers use [API]; package httptransport
// has an http.RoundTripper.
type RawRequest struct {
	Method, URL string
	Headers     [][2]string
	// Body is nil where there is none.
	Body []byte
	// Credential is the name of the operator's credential that the host adds; empty for none.
	Credential string
	// Timeout of the whole exchange; 0 for the host's limits alone.
	Timeout time.Duration
}

// RawResponse is a response as the contract has it.
type RawResponse struct {
	Status  int
	Headers [][2]string
	Body    []byte
}

// RawAnswer is a response, or why there is none.
type RawAnswer struct {
	Response RawResponse
	Failure  *Failure
}

// FailureKind is why a request got no response.
type FailureKind string

// The contract's failures.
const (
	FailureForbidden             FailureKind = "forbidden"
	FailureLimited               FailureKind = "limited"
	FailureMalformed             FailureKind = "malformed"
	FailureUnreachable           FailureKind = "unreachable"
	FailureTLS                   FailureKind = "tls"
	FailureInterrupted           FailureKind = "interrupted"
	FailureTimeout               FailureKind = "timeout"
	FailureTooLarge              FailureKind = "too-large"
	FailureCredentialRefused     FailureKind = "credential-refused"
	FailureCredentialUnavailable FailureKind = "credential-unavailable"
)

// Failure is a request without a response.
type Failure struct {
	Kind    FailureKind
	Message string
}

func (f *Failure) Error() string { return f.contractError().Message }

// Timeout is net.Error's.
func (f *Failure) Timeout() bool { return f.Kind == FailureTimeout }

// Temporary is net.Error's.
func (f *Failure) Temporary() bool { return f.contractError().Code == CodeUnavailable }

// As lets errors.As find the contract error that a failure is.
func (f *Failure) As(target any) bool {
	if known, ok := target.(**Error); ok {
		*known = f.contractError()
		return true
	}
	return false
}

func (f *Failure) contractError() *Error {
	code, what := CodeUnavailable, string(f.Kind)
	switch f.Kind {
	case FailureForbidden:
		code, what = CodeDenied, "the operator does not allow it"
	case FailureLimited:
		what = "a limit of the sandbox was met"
	case FailureMalformed:
		code, what = CodeInternal, "not a request that can be sent"
	case FailureUnreachable:
		what = "the cloud is unreachable"
	case FailureTLS:
		what = "no trusted connection to the cloud"
	case FailureInterrupted:
		what = "the answer was cut off"
	case FailureTimeout:
		what = "the cloud did not answer in time"
	case FailureTooLarge:
		code, what = CodeInternal, "the answer is larger than the sandbox allows"
	case FailureCredentialRefused:
		code, what = CodeDenied, "the login was refused"
	case FailureCredentialUnavailable:
		what = "no login is possible now"
	}
	if f.Message != "" {
		what += ": " + f.Message
	}
	return &Error{Code: code, Message: what}
}

// SendRaw sends requests at the same time and returns their answers in the order of the requests.
func SendRaw(requests []RawRequest) []RawAnswer { return current.Send(requests) }

// API is the root of an HTTP API that speaks JSON. The host adds the named credential to each
// request, follows no redirect and repeats nothing.
type API struct {
	Endpoint   string
	Credential string
	Timeout    time.Duration
	// Judge finds errors that a status does not tell; nil decides by the status alone.
	Judge func(*Response) error
}

// Origin returns scheme, host and port of the endpoint.
func (a *API) Origin() string {
	start := 0
	if scheme := strings.Index(a.Endpoint, "://"); scheme >= 0 {
		start = scheme + len("://")
	}
	if end := strings.IndexAny(a.Endpoint[start:], "/?#"); end >= 0 {
		return a.Endpoint[:start+end]
	}
	return a.Endpoint
}

// Request begins a request to the path that the segments are; each is escaped.
func (a *API) Request(method string, segments ...string) *Request {
	address := strings.TrimRight(a.Endpoint, "/")
	var broken error
	for _, segment := range segments {
		if segment == "" {
			// DELETE /servers/ is another request than DELETE /servers/ID.
			broken = Internal("%s %s: a segment of the path is empty", method, address)
		}
		address += "/" + escapeSegment(segment)
	}
	return &Request{api: a, broken: broken, raw: RawRequest{
		Method: method, URL: address, Credential: a.Credential, Timeout: a.Timeout,
		Headers: [][2]string{{"accept", "application/json"}},
	}}
}

// Get begins a GET.
func (a *API) Get(segments ...string) *Request { return a.Request("GET", segments...) }

// Post begins a POST.
func (a *API) Post(segments ...string) *Request { return a.Request("POST", segments...) }

// Put begins a PUT.
func (a *API) Put(segments ...string) *Request { return a.Request("PUT", segments...) }

// Patch begins a PATCH.
func (a *API) Patch(segments ...string) *Request { return a.Request("PATCH", segments...) }

// Delete begins a DELETE.
func (a *API) Delete(segments ...string) *Request { return a.Request("DELETE", segments...) }

// Follow begins a GET of a link that the cloud returned, such as that of the next page. A link to
// another origin is refused, because the request would carry the credential there.
func (a *API) Follow(link string) *Request {
	request := a.Request("GET")
	base, err := url.Parse(request.raw.URL)
	if err != nil {
		request.broken = Internal("the endpoint is no URL: %v", err)
		return request
	}
	target, err := base.Parse(link)
	switch {
	case err != nil || link == "":
		request.broken = Internal("the link %q is no URL: %v", link, err)
	case target.Scheme != base.Scheme || target.Host != base.Host || target.User != nil:
		request.broken = Internal("the link %q leads to another origin than %s", link, a.Origin())
	default:
		request.raw.URL = target.String()
	}
	return request
}

// A segment "." or ".." would mean another path.
func escapeSegment(segment string) string {
	if segment == "." || segment == ".." {
		return strings.ReplaceAll(segment, ".", "%2E")
	}
	return url.PathEscape(segment)
}

// Request is a request that is being built. Its methods return a new one, so that a request can be
// the beginning of several.
type Request struct {
	api    *API
	raw    RawRequest
	broken error
}

// Query adds a parameter.
func (r *Request) Query(key, value string) *Request {
	next, separator := *r, "?"
	if strings.Contains(r.raw.URL, "?") {
		separator = "&"
	}
	next.raw.URL += separator + escapeQuery(key) + "=" + escapeQuery(value)
	return &next
}

// Some servers do not read a plus sign as a space.
func escapeQuery(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// QueryUnlessEmpty adds a parameter that has a value.
func (r *Request) QueryUnlessEmpty(key, value string) *Request {
	if value == "" {
		return r
	}
	return r.Query(key, value)
}

// Header adds a header.
func (r *Request) Header(name, value string) *Request {
	next := *r
	next.raw.Headers = append(slices.Clip(r.raw.Headers), [2]string{strings.ToLower(name), value})
	return &next
}

// JSON sets the body.
func (r *Request) JSON(value any) *Request {
	body, err := json.Marshal(value)
	if err != nil {
		next := *r
		next.broken = Internal("%s: the body is not JSON: %v", r.line(), err)
		return &next
	}
	return r.Body("application/json", body)
}

// Form sets the body to these pairs.
func (r *Request) Form(values url.Values) *Request {
	return r.Body("application/x-www-form-urlencoded; charset=utf-8", []byte(values.Encode()))
}

// Body sets the body.
func (r *Request) Body(contentType string, body []byte) *Request {
	next := r.Header("content-type", contentType)
	if next.raw.Body = body; body == nil {
		next.raw.Body = []byte{}
	}
	return next
}

// Raw returns the request as the contract has it.
func (r *Request) Raw() RawRequest { return r.raw }

// Send returns a response that means success, or the contract's error for another one.
func (r *Request) Send() (*Response, error) {
	result := SendAll(r)[0]
	return result.Value, result.Err
}

// SendAny returns the response whatever its status is; an error only where there is no response.
func (r *Request) SendAny() (*Response, error) {
	if r.broken != nil {
		return nil, r.broken
	}
	result := r.answered(current.Send([]RawRequest{r.raw}), 0)
	return result.Value, result.Err
}

// SendAll sends requests at the same time. The results are in the order of the requests.
func SendAll(requests ...*Request) []Result[*Response] {
	results := make([]Result[*Response], len(requests))
	var raw []RawRequest
	var places []int
	for place, request := range requests {
		if request.broken != nil {
			results[place].Err = request.broken
			continue
		}
		raw, places = append(raw, request.raw), append(places, place)
	}
	if len(raw) == 0 {
		return results
	}
	answers := current.Send(raw)
	for index, place := range places {
		results[place] = requests[place].judged(answers, index)
	}
	return results
}

func (r *Request) judged(answers []RawAnswer, index int) Result[*Response] {
	result := r.answered(answers, index)
	if result.Err != nil {
		return result
	}
	if r.api.Judge != nil {
		if err := r.api.Judge(result.Value); err != nil {
			return Result[*Response]{Err: err}
		}
	}
	if err := result.Value.check(); err != nil {
		return Result[*Response]{Err: err}
	}
	return result
}

func (r *Request) answered(answers []RawAnswer, index int) Result[*Response] {
	if index >= len(answers) {
		return Result[*Response]{Err: Internal("the host returned fewer responses than requests")}
	}
	answer := answers[index]
	if answer.Failure != nil {
		return Result[*Response]{Err: fmt.Errorf("%s: %w", r.line(), answer.Failure)}
	}
	return Result[*Response]{Value: &Response{RawResponse: answer.Response, line: r.line()}}
}

// SendEvery sends requests at the same time and returns all responses, or the worst error: one that
// a wait does not mend, before the longest wait, before an outage.
func SendEvery(requests ...*Request) ([]*Response, error) {
	var responses []*Response
	var worst error
	for _, result := range SendAll(requests...) {
		switch {
		case result.Err == nil:
			responses = append(responses, result.Value)
		case worst == nil || isWorse(AsError(result.Err), AsError(worst)):
			worst = result.Err
		}
	}
	if worst != nil {
		return nil, worst
	}
	return responses, nil
}

func (r *Request) line() string {
	path, _, _ := strings.Cut(r.raw.URL, "?")
	return r.raw.Method + " " + path
}

// Response is a response.
type Response struct {
	RawResponse
	line string
}

// Header returns the first value of a header; empty where there is none.
func (r *Response) Header(name string) string {
	for _, header := range r.Headers {
		if strings.EqualFold(header[0], name) {
			return header[1]
		}
	}
	return ""
}

// JSON reads the body. An empty body or null is an error: Go would read it as an empty value, and
// an empty list may delete nodes. An absent member of an object still reads as an empty one.
func (r *Response) JSON(into any) error {
	if body := bytes.TrimSpace(r.Body); len(body) == 0 || string(body) == "null" {
		return Internal("%s: the answer is empty: %q", r.line, body)
	}
	if err := json.Unmarshal(r.Body, into); err != nil {
		return Internal("%s: unexpected JSON: %v", r.line, err)
	}
	return nil
}

// NextLink returns the target of Link: <...>; rel="next"; empty for none.
func (r *Response) NextLink() string {
	for _, header := range r.Headers {
		if !strings.EqualFold(header[0], "link") {
			continue
		}
		// A target may have commas, but no angle brackets.
		for _, link := range strings.Split(header[1], "<")[1:] {
			target, parameters, _ := strings.Cut(link, ">")
			if slices.ContainsFunc(strings.Split(parameters, ";"), isNext) {
				return target
			}
		}
	}
	return ""
}

// isNext reports whether a parameter of a link says that the link leads to the next page.
func isNext(parameter string) bool {
	name, value, _ := strings.Cut(strings.TrimRight(parameter, ", \t"), "=")
	relations := strings.Fields(strings.Trim(strings.TrimSpace(value), `"`))
	next := func(relation string) bool { return strings.EqualFold(relation, "next") }
	return strings.EqualFold(strings.TrimSpace(name), "rel") && slices.ContainsFunc(relations, next)
}

// Absent turns NotFound into nil, for deletions.
func Absent(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}

// RetryAfter returns the wait that the response asks for, in seconds or
// until a date; false for none.
func (r *Response) RetryAfter() (time.Duration, bool) {
	names := []string{"retry-after"}
	if r.Status == 429 {
		names = append(names, "ratelimit-reset", "x-ratelimit-reset")
	}
	for _, name := range names {
		if wait, ok := r.wait(strings.TrimSpace(r.Header(name))); ok {
			return wait, true
		}
	}
	return 0, false
}

// Numbers from here on are seconds, or milliseconds, since 1970.
const (
	epochSeconds      = 1_000_000_000
	epochMilliseconds = epochSeconds * 1_000
	httpDate          = "Mon, 02 Jan 2006 15:04:05 GMT"
)

func (r *Response) wait(value string) (time.Duration, bool) {
	var then time.Time
	if number, err := strconv.ParseUint(value, 10, 63); err == nil {
		switch {
		case number < epochSeconds:
			return time.Duration(number) * time.Second, true
		case number >= epochMilliseconds:
			then = time.UnixMilli(int64(number))
		default:
			then = time.Unix(int64(number), 0)
		}
	} else if then, err = time.Parse(httpDate, value); err != nil {
		return 0, false
	}
	// The cloud's clock may differ from this one.
	now, err := time.Parse(httpDate, strings.TrimSpace(r.Header("date")))
	if err != nil {
		return 0, false
	}
	return max(then.Sub(now), 0), true
}

func (r *Response) check() error {
	mediaType, _, _ := strings.Cut(r.Header("content-type"), ";")
	isHTML := strings.EqualFold(strings.TrimSpace(mediaType), "text/html")
	if isHTML && (r.Status < 300 || r.Status == 404 || r.Status == 410) {
		return Unavailable("%s", r.Message("a page in HTML, which is not an answer of the API"))
	}
	if r.Status < 300 {
		return nil
	}
	message := r.Message(r.detail())
	wait, hasWait := r.RetryAfter()
	switch {
	case r.Status == 401 || r.Status == 403:
		return Denied("%s", message)
	case r.Status == 404 || r.Status == 410:
		return NotFound("%s", message)
	case hasWait && (r.Status == 413 || r.Status == 503):
		return RetryAfter(wait, "%s", message)
	case r.Status == 400 || r.Status == 413 || r.Status == 422:
		return Invalid("%s", message)
	case r.Status == 402 || r.Status == 507:
		return Exhausted("%s", message)
	case r.Status == 409 || r.Status == 423 || r.Status == 429:
		return RetryAfter(wait, "%s", message)
	case r.Status == 408 || r.Status == 425 || r.Status >= 500 && r.Status < 600:
		return Unavailable("%s", message)
	}
	return Internal("%s", message)
}

// Message is the text of an error about this response: request, status and what the cloud said.
func (r *Response) Message(said string) string {
	if said != "" {
		said = ": " + said
	}
	return fmt.Sprintf("%s: status %d%s", r.line, r.Status, said)
}

const detailBytesMax = 300

// detail is what the body says about the error, in the members that most APIs have.
func (r *Response) detail() string {
	var body any
	text := strings.TrimSpace(strings.ToValidUTF8(string(r.Body), "\uFFFD"))
	if json.Unmarshal(r.Body, &body) == nil {
		if said := saidBy(body); said != "" {
			text = said
		}
	}
	if len(text) <= detailBytesMax {
		return text
	}
	end := detailBytesMax
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

func saidBy(body any) string {
	members, isObject := body.(map[string]any)
	if !isObject {
		text, _ := body.(string)
		return text
	}
	inner := body
	if error, ok := members["error"]; ok {
		inner = error
	}
	if len(members) == 1 {
		for _, only := range members {
			if _, ok := only.(map[string]any); ok {
				inner = only
			}
		}
	}
	members, isObject = inner.(map[string]any)
	if !isObject {
		text, _ := inner.(string)
		return text
	}
	for _, key := range []string{"message", "detail", "title", "faultstring", "error"} {
		if text, ok := members[key].(string); ok {
			return text
		}
	}
	return ""
}

// pagesMax bounds [Pages].
const pagesMax = 1_000

// Pages collects a list that the cloud returns in pages, by the cursor of the next page; an empty
// cursor ends the list.
func Pages[T any](page func(cursor string) (entries []T, next string, err error)) ([]T, error) {
	var all []T
	seen := map[string]bool{}
	cursor := ""
	for range pagesMax {
		entries, next, err := page(cursor)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
		if next == "" {
			return all, nil
		}
		if seen[next] {
			return nil, Unavailable("the list does not end: cursor %q came twice", next)
		}
		seen[next], cursor = true, next
	}
	return nil, Unavailable("the list does not end after %d pages", pagesMax)
}

// readsMax is how often [OffsetPages] reads a list that changes meanwhile.
const readsMax = 3

// OffsetPages collects a list that the cloud returns in pages by offset or number, together with
// the number of entries of the whole list. An entry that goes between two pages moves the later
// ones forward, and one of them is on no page: the list is then read again, and an error where it
// changes each time. A deletion together with a creation is not seen: look a machine up before it
// is gone.
func OffsetPages[T any](id func(T) string, page func(offset int) (entries []T, total int, err error)) ([]T, error) {
	for range readsMax {
		all, unchanged, err := readByOffset(id, page)
		if unchanged || err != nil {
			return all, err
		}
	}
	return nil, Unavailable("the list changed between two pages, %d times", readsMax)
}

func readByOffset[T any](id func(T) string, page func(offset int) ([]T, int, error)) (all []T, unchanged bool, err error) {
	total := 0
	for count := range pagesMax {
		entries, now, err := page(len(all))
		if err != nil {
			return nil, false, err
		}
		if count > 0 && (now != total || len(entries) == 0) {
			return nil, false, nil
		}
		if all, total = append(all, entries...), now; len(all) >= total {
			seen := map[string]bool{}
			for _, entry := range all {
				seen[id(entry)] = true
			}
			return all, len(all) == total && len(seen) == total, nil
		}
	}
	return nil, false, Unavailable("the list does not end after %d pages", pagesMax)
}
