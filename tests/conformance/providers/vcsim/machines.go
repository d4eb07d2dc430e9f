package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

// The network of all machines, as guest.net names it.
const network = "VM Network"

// An addition creates running machines in a datacenter, by turns on its hosts.
type addition struct {
	// The inventory path of the datacenter.
	Datacenter string `json:"datacenter"`
	Machines   []struct {
		Name string `json:"name"`
		// The UUID of the firmware; a random one if it is empty.
		UUID string `json:"uuid"`
	} `json:"machines"`
}

// A machine is what the test has to know of a machine that was created.
type machine struct {
	UUID    string `json:"uuid"`
	Address string `json:"address"`
}

// A place is where machines of a datacenter are created.
type place struct {
	folder *object.Folder
	pool   *object.ResourcePool
	hosts  []*object.HostSystem
}

func (v *vcenter) place(ctx context.Context, path string) (*place, error) {
	if known := v.places[path]; known != nil {
		return known, nil
	}
	datacenter, err := v.finder.Datacenter(ctx, path)
	if err != nil {
		return nil, err
	}
	finder := v.finder.SetDatacenter(datacenter)
	folders, err := datacenter.Folders(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := finder.HostSystemList(ctx, "*/*")
	if err != nil {
		return nil, err
	}
	pool, err := hosts[0].ResourcePool(ctx)
	if err != nil {
		return nil, err
	}
	v.places[path] = &place{folder: folders.VmFolder, pool: pool, hosts: hosts}
	return v.places[path], nil
}

// add starts all tasks of a kind before it waits for the first one: a wait takes as long as thirty
// tasks.
func (v *vcenter) add(ctx context.Context, addition *addition) (any, error) {
	place, err := v.place(ctx, addition.Datacenter)
	if err != nil {
		return nil, err
	}
	machines, specs := []machine{}, []types.VirtualMachineConfigSpec{}
	for _, wanted := range addition.Machines {
		v.created++
		one := machine{UUID: wanted.UUID, Address: fmt.Sprintf("10.1.%d.%d", v.created/250, v.created%250+1)}
		if one.UUID == "" {
			one.UUID = uuid.NewString()
		}
		machines = append(machines, one)
		specs = append(specs, types.VirtualMachineConfigSpec{
			Name:     wanted.Name,
			Uuid:     one.UUID,
			GuestId:  string(types.VirtualMachineGuestOsIdentifierUbuntu64Guest),
			NumCPUs:  2,
			MemoryMB: 8192,
			Files:    &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"},
		})
	}
	created, err := each(ctx, specs, func(number int, spec types.VirtualMachineConfigSpec) (*object.Task, error) {
		return place.folder.CreateVM(ctx, spec, place.pool, place.hosts[number%len(place.hosts)])
	})
	if err != nil {
		return nil, err
	}
	if _, err := each(ctx, created, func(_ int, result any) (*object.Task, error) {
		return object.NewVirtualMachine(v.client, result.(types.ManagedObjectReference)).PowerOn(ctx)
	}); err != nil {
		return nil, err
	}
	for number, result := range created {
		running := types.VirtualMachineToolsRunningStatusGuestToolsRunning
		v.report(result.(types.ManagedObjectReference), running, specs[number].Name, machines[number].Address)
	}
	return map[string]any{"machines": machines}, nil
}

// each starts a task for each of the subjects and returns the results.
func each[T any](ctx context.Context, subjects []T, start func(int, T) (*object.Task, error)) ([]any, error) {
	tasks, results := []*object.Task{}, []any{}
	for number, subject := range subjects {
		task, err := start(number, subject)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	for _, task := range tasks {
		done, err := task.WaitForResult(ctx)
		if err != nil {
			return nil, err
		}
		results = append(results, done.Result)
	}
	return results, nil
}

// report sets what VMware Tools say of a machine. Machines of the simulator have no Tools.
func (v *vcenter) report(of types.ManagedObjectReference, tools types.VirtualMachineToolsRunningStatus, name, address string) {
	nics := []types.GuestNicInfo{}
	if address != "" {
		nics = []types.GuestNicInfo{{
			Network:        network,
			IpAddress:      []string{address, "fe80::1"},
			MacAddress:     "00:50:56:00:00:01",
			Connected:      true,
			DeviceConfigId: 4000,
		}}
	}
	ctx := v.model.Service.Context
	ctx.Map.AtomicUpdate(ctx, ctx.Map.Get(of), []types.PropertyChange{
		{Name: "guest.toolsRunningStatus", Val: string(tools)},
		{Name: "guest.hostName", Val: name},
		{Name: "guest.ipAddress", Val: address},
		{Name: "guest.net", Val: nics},
	})
}

func (v *vcenter) stop(ctx context.Context, uuid string) error {
	found, err := v.find(ctx, uuid)
	if err != nil {
		return err
	}
	task, err := found.PowerOff(ctx)
	if err != nil {
		return err
	}
	if err := task.Wait(ctx); err != nil {
		return err
	}
	// Without VMware Tools vCenter knows no host name and no addresses; the simulator keeps both.
	v.report(found.Reference(), types.VirtualMachineToolsRunningStatusGuestToolsNotRunning, "", "")
	return nil
}

func (v *vcenter) delete(ctx context.Context, uuid string) error {
	found, err := v.find(ctx, uuid)
	if err != nil {
		return err
	}
	state, err := found.PowerState(ctx)
	if err != nil {
		return err
	}
	if state == types.VirtualMachinePowerStatePoweredOn {
		if err := v.stop(ctx, uuid); err != nil {
			return err
		}
	}
	task, err := found.Destroy(ctx)
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}

func (v *vcenter) find(ctx context.Context, uuid string) (*object.VirtualMachine, error) {
	found, err := object.NewSearchIndex(v.client).FindByUuid(ctx, nil, uuid, true, nil)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("no machine has the UUID %s", uuid)
	}
	return object.NewVirtualMachine(v.client, found.Reference()), nil
}
