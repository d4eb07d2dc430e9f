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
	Datacenter string   `json:"datacenter"`
	Machines   []wanted `json:"machines"`
}

// A wanted machine has what the test says, and usual values where the test says nothing.
type wanted struct {
	Name string `json:"name"`
	// The UUID of the firmware.
	UUID     string `json:"uuid"`
	CPUs     int32  `json:"cpus"`
	MemoryMB int64  `json:"memory_mb"`
	// The identifier of the operating system in vSphere.
	Guest string `json:"guest"`
	// What cloud-init was given, in base64.
	Metadata string `json:"metadata"`
	// What VMware Tools report; none do if the list is empty.
	NICs *[]nic `json:"nics"`
}

// A nic is a network interface as VMware Tools report it.
type nic struct {
	Network   string   `json:"network"`
	Addresses []string `json:"addresses"`
	// Whether a container runtime made the interface.
	Inside bool `json:"inside"`
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
	for number := range addition.Machines {
		v.created++
		wanted := &addition.Machines[number]
		address := fmt.Sprintf("10.1.%d.%d", v.created/250, v.created%250+1)
		wanted.complete(address)
		machines = append(machines, machine{UUID: wanted.UUID, Address: address})
		specs = append(specs, wanted.spec())
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
		wanted := addition.Machines[number]
		v.report(result.(types.ManagedObjectReference), wanted.Name, *wanted.NICs)
	}
	return map[string]any{"machines": machines}, nil
}

// complete sets what the test has not said.
func (w *wanted) complete(address string) {
	if w.UUID == "" {
		w.UUID = uuid.NewString()
	}
	if w.CPUs == 0 {
		w.CPUs = 2
	}
	if w.MemoryMB == 0 {
		w.MemoryMB = 8192
	}
	if w.Guest == "" {
		w.Guest = string(types.VirtualMachineGuestOsIdentifierUbuntu64Guest)
	}
	if w.NICs == nil {
		w.NICs = &[]nic{{Network: network, Addresses: []string{address, "fe80::1"}}}
	}
}

func (w *wanted) spec() types.VirtualMachineConfigSpec {
	spec := types.VirtualMachineConfigSpec{
		Name:     w.Name,
		Uuid:     w.UUID,
		GuestId:  w.Guest,
		NumCPUs:  w.CPUs,
		MemoryMB: w.MemoryMB,
		Files:    &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"},
	}
	if w.Metadata != "" {
		spec.ExtraConfig = []types.BaseOptionValue{
			&types.OptionValue{Key: "guestinfo.metadata", Value: w.Metadata},
			&types.OptionValue{Key: "guestinfo.metadata.encoding", Value: "base64"},
		}
	}
	return spec
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

// report sets what VMware Tools say of a machine: nothing without network interfaces. Machines of
// the simulator have no Tools.
func (v *vcenter) report(of types.ManagedObjectReference, name string, nics []nic) {
	tools, address := types.VirtualMachineToolsRunningStatusGuestToolsRunning, ""
	if len(nics) == 0 {
		tools, name = types.VirtualMachineToolsRunningStatusGuestToolsNotRunning, ""
	}
	reported := []types.GuestNicInfo{}
	for number, nic := range nics {
		info := types.GuestNicInfo{
			Network:        nic.Network,
			IpAddress:      nic.Addresses,
			MacAddress:     fmt.Sprintf("00:50:56:00:00:%02x", number+1),
			Connected:      true,
			DeviceConfigId: 4000 + int32(number),
		}
		if nic.Inside {
			info.DeviceConfigId = -1
		} else if address == "" && len(nic.Addresses) > 0 {
			address = nic.Addresses[0]
		}
		reported = append(reported, info)
	}
	ctx := v.model.Service.Context
	ctx.Map.AtomicUpdate(ctx, ctx.Map.Get(of), []types.PropertyChange{
		{Name: "guest.toolsRunningStatus", Val: string(tools)},
		{Name: "guest.hostName", Val: name},
		{Name: "guest.ipAddress", Val: address},
		{Name: "guest.net", Val: reported},
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
	v.report(found.Reference(), "", nil)
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
