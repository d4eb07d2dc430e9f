package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// A searchIndex finds only machines of the datacenter that a query names, as vCenter Server does:
// the simulator ignores the datacenter.
type searchIndex struct {
	*simulator.SearchIndex
}

func (s *searchIndex) FindAllByUuid(ctx *simulator.Context, query *types.FindAllByUuid) soap.HasFault {
	body := s.SearchIndex.FindAllByUuid(ctx, query).(*methods.FindAllByUuidBody)
	body.Res.Returnval = inside(ctx, query.Datacenter, body.Res.Returnval)
	return body
}

func (s *searchIndex) FindAllByDnsName(ctx *simulator.Context, query *types.FindAllByDnsName) soap.HasFault {
	body := s.SearchIndex.FindAllByDnsName(ctx, query).(*methods.FindAllByDnsNameBody)
	body.Res.Returnval = inside(ctx, query.Datacenter, body.Res.Returnval)
	return body
}

func (s *searchIndex) FindAllByIp(ctx *simulator.Context, query *types.FindAllByIp) soap.HasFault {
	body := s.SearchIndex.FindAllByIp(ctx, query).(*methods.FindAllByIpBody)
	body.Res.Returnval = inside(ctx, query.Datacenter, body.Res.Returnval)
	return body
}

// inside returns those of the found objects that are below the datacenter.
func inside(ctx *simulator.Context, datacenter *types.ManagedObjectReference, found []types.ManagedObjectReference) []types.ManagedObjectReference {
	if datacenter == nil {
		return found
	}
	return slices.DeleteFunc(found, func(at types.ManagedObjectReference) bool {
		for at != *datacenter {
			entity, ok := ctx.Map.Get(at).(mo.Entity)
			if !ok || entity.Entity().Parent == nil {
				return true
			}
			at = *entity.Entity().Parent
		}
		return false
	})
}
