package main

import (
	"context"
	"net/http"
	"net/url"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/rest"
	vapi "github.com/vmware/govmomi/vapi/simulator"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// An account is the only one of the vCenter.
type account struct {
	user, password string

	mutex   sync.Mutex
	revoked bool
	// The sessions of REST that were used, and whether they are over.
	sessions map[string]bool
}

// The header with the session of a request to REST.
const sessionHeader = "vmware-api-session-id"

// serve starts the SOAP and the REST API on a free port, without TLS.
func (a *account) serve(service *simulator.Service) (*simulator.Server, error) {
	service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(a.user, a.password)}
	service.Context.Map.SessionManager().ValidLogin = func(login *types.Login) bool {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		return !a.revoked && login.UserName == a.user && login.Password == a.password
	}
	server := service.NewServer()
	patterns, api := vapi.New(server.URL, service.Context.Map)
	for _, pattern := range patterns {
		service.Handle(pattern, a.guard(api))
	}
	return server, nil
}

// guard answers 401 to sessions that are over: the simulator of REST does not let others end its
// sessions.
func (a *account) guard(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.isOver(r.Header.Get(sessionHeader)) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		api.ServeHTTP(w, r)
	})
}

func (a *account) isOver(session string) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if session != "" && !a.sessions[session] {
		a.sessions[session] = false
	}
	return a.sessions[session]
}

// tagManager logs in to REST, the only way to make tags.
func (a *account) tagManager(ctx context.Context, sdk *url.URL) (*tags.Manager, error) {
	client, err := vim25.NewClient(ctx, soap.NewClient(sdk, false))
	if err != nil {
		return nil, err
	}
	api := rest.NewClient(client)
	if err := api.Login(ctx, url.UserPassword(a.user, a.password)); err != nil {
		return nil, err
	}
	return tags.NewManager(api), nil
}

// revoke ends all sessions; every login from now on is refused.
func (a *account) revoke(ctx *simulator.Context) error {
	a.mutex.Lock()
	a.revoked = true
	a.mutex.Unlock()
	return a.end(ctx)
}

// end ends all sessions.
func (a *account) end(ctx *simulator.Context) error {
	a.mutex.Lock()
	for session := range a.sessions {
		a.sessions[session] = true
	}
	a.mutex.Unlock()
	manager := ctx.Map.SessionManager()
	request := &types.TerminateSession{This: manager.Self}
	for _, session := range ctx.Session.Get(manager.Self).(*simulator.SessionManager).SessionList {
		request.SessionId = append(request.SessionId, session.Key)
	}
	if fault := manager.TerminateSession(ctx, request).Fault(); fault != nil {
		return soap.WrapSoapFault(fault)
	}
	return nil
}
