// The vCenter Server of the tests: govmomi's simulator with one account, whose sessions a test may
// end, and with machines and tags as the test orders them.
//
// The program prints a line of JSON when it serves, answers each line of its standard input with
// one, and ends with its standard input.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
)

// A vcenter is the simulator and what the test has ordered.
type vcenter struct {
	model   *simulator.Model
	account account
	// Calls the simulator in this process, without a login.
	client *vim25.Client
	finder *find.Finder
	// Where SOAP is.
	sdk *url.URL
	// Where the machines of a datacenter are, by the inventory path of the datacenter.
	places map[string]*place
	// How many machines there were so far.
	created int
}

// The facts that the test needs to reach the vCenter.
type facts struct {
	Address  string `json:"address"`
	User     string `json:"user"`
	Password string `json:"password"`
}

// A question of the test: exactly one field.
type question struct {
	Add    *addition `json:"add"`
	Stop   string    `json:"stop"`
	Delete string    `json:"delete"`
	Revoke bool      `json:"revoke"`
	End    bool      `json:"end"`
	Tag    *tagging  `json:"tag"`
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx := context.Background()
	vcenter, address, err := start(ctx)
	if err != nil {
		return err
	}
	defer vcenter.model.Remove()
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	account := &vcenter.account
	if err := answers.Encode(facts{Address: address, User: account.user, Password: account.password}); err != nil {
		return err
	}
	for {
		var question question
		if err := questions.Decode(&question); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answer, err := vcenter.answer(ctx, &question)
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

// start makes an empty inventory and serves it: the datacenter /DC0, and /F0/DC1 in a folder, each
// with one cluster of two hosts.
func start(ctx context.Context) (*vcenter, string, error) {
	model := simulator.VPX()
	model.Datacenter, model.Folder, model.ClusterHost = 2, 1, 2
	model.Host, model.Machine, model.Portgroup = 0, 0, 0
	if err := model.Create(); err != nil {
		return nil, "", err
	}
	vcenter := &vcenter{
		model:   model,
		account: account{user: "skysail@vsphere.local", password: rand.Text(), sessions: map[string]bool{}},
		places:  map[string]*place{},
	}
	model.Map().Put(&searchIndex{model.Map().SearchIndex()})
	server, err := vcenter.account.serve(model.Service)
	if err != nil {
		return nil, "", err
	}
	if vcenter.client, err = vim25.NewClient(ctx, model.Service); err != nil {
		return nil, "", err
	}
	vcenter.finder = find.NewFinder(vcenter.client)
	vcenter.sdk = server.URL
	return vcenter, server.Listener.Addr().String(), nil
}

func (v *vcenter) answer(ctx context.Context, question *question) (any, error) {
	done := map[string]bool{"done": true}
	switch {
	case question.Add != nil:
		return v.add(ctx, question.Add)
	case question.Stop != "":
		return done, v.stop(ctx, question.Stop)
	case question.Delete != "":
		return done, v.delete(ctx, question.Delete)
	case question.Revoke:
		return done, v.account.revoke(v.model.Service.Context)
	case question.End:
		return done, v.account.end(v.model.Service.Context)
	case question.Tag != nil:
		return done, v.attach(ctx, question.Tag)
	default:
		return nil, errors.New("the question has no known field")
	}
}

// A tagging attaches a tag to the object at an inventory path. Category and tag are created if
// there are none of these names.
type tagging struct {
	Category string `json:"category"`
	Tag      string `json:"tag"`
	Path     string `json:"path"`
}

func (v *vcenter) attach(ctx context.Context, t *tagging) error {
	target, err := object.NewSearchIndex(v.client).FindByInventoryPath(ctx, t.Path)
	if err != nil {
		return err
	}
	if target == nil {
		return fmt.Errorf("there is no %s", t.Path)
	}
	manager, err := v.account.tagManager(ctx, v.sdk)
	if err != nil {
		return err
	}
	if _, err := manager.GetCategory(ctx, t.Category); err != nil {
		if _, err := manager.CreateCategory(ctx, &tags.Category{Name: t.Category, Cardinality: "SINGLE"}); err != nil {
			return err
		}
	}
	id := ""
	if tag, err := manager.GetTagForCategory(ctx, t.Tag, t.Category); err == nil {
		id = tag.ID
	} else if id, err = manager.CreateTag(ctx, &tags.Tag{Name: t.Tag, CategoryID: t.Category}); err != nil {
		return err
	}
	return manager.AttachTag(ctx, id, target.Reference())
}
