package cloudprovider

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"skysail.dev/provider"
)

func toNode(node provider.Node) *v1.Node {
	ready := v1.ConditionFalse
	if node.Ready {
		ready = v1.ConditionTrue
	}
	object := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: types.UID(node.UID), Labels: node.Labels, Annotations: node.Annotations,
		},
		Spec: v1.NodeSpec{ProviderID: node.ProviderID, PodCIDRs: node.PodCIDRs},
		Status: v1.NodeStatus{
			Addresses:  toAddresses(node.Addresses),
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}},
			NodeInfo:   v1.NodeSystemInfo{SystemUUID: node.Extra[provider.SystemUUID]},
		},
	}
	if len(node.PodCIDRs) > 0 {
		object.Spec.PodCIDR = node.PodCIDRs[0]
	}
	return object
}

func toAddresses(addresses []provider.NodeAddress) []v1.NodeAddress {
	converted := make([]v1.NodeAddress, 0, len(addresses))
	for _, address := range addresses {
		converted = append(converted, v1.NodeAddress{Type: v1.NodeAddressType(address.Type), Address: address.Address})
	}
	return converted
}

func fromAddresses(addresses []v1.NodeAddress) []provider.NodeAddress {
	converted := make([]provider.NodeAddress, 0, len(addresses))
	for _, address := range addresses {
		converted = append(converted, provider.NodeAddress{Type: provider.AddressType(address.Type), Address: address.Address})
	}
	return converted
}

func toService(service *provider.Service) *v1.Service {
	internal := v1.ServiceInternalTrafficPolicy(service.InternalTrafficPolicy)
	object := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name, UID: types.UID(service.UID), Labels: service.Labels,
			Annotations: service.Annotations,
		},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, SessionAffinity: v1.ServiceAffinityNone,
			LoadBalancerIP: service.LoadBalancerIP, LoadBalancerClass: orNil(service.LoadBalancerClass),
			LoadBalancerSourceRanges: service.SourceRanges, ExternalIPs: service.ExternalIPs,
			ExternalTrafficPolicy: v1.ServiceExternalTrafficPolicy(service.ExternalTrafficPolicy),
			InternalTrafficPolicy: &internal, HealthCheckNodePort: int32(service.HealthCheckNodePort),
			IPFamilyPolicy:                orNil(v1.IPFamilyPolicy(service.IPFamilyPolicy)),
			AllocateLoadBalancerNodePorts: &service.AllocateNodePorts,
		},
	}
	for _, port := range service.Ports {
		object.Spec.Ports = append(object.Spec.Ports, v1.ServicePort{
			Name: port.Name, Protocol: v1.Protocol(port.Protocol), AppProtocol: orNil(port.AppProtocol),
			Port: int32(port.Port), NodePort: int32(port.NodePort), TargetPort: intstr.Parse(port.TargetPort),
		})
	}
	if service.ClientIPTimeoutSeconds > 0 {
		seconds := int32(service.ClientIPTimeoutSeconds)
		object.Spec.SessionAffinity = v1.ServiceAffinityClientIP
		object.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	for _, family := range service.IPFamilies {
		object.Spec.IPFamilies = append(object.Spec.IPFamilies, v1.IPFamily(family))
	}
	for _, ingress := range service.Status.Ingress {
		converted := v1.LoadBalancerIngress{
			IP: ingress.IP, Hostname: ingress.Hostname, IPMode: orNil(v1.LoadBalancerIPMode(ingress.IPMode)),
		}
		for _, port := range ingress.Ports {
			converted.Ports = append(converted.Ports, v1.PortStatus{
				Port: int32(port.Port), Protocol: v1.Protocol(port.Protocol), Error: orNil(port.Error),
			})
		}
		object.Status.LoadBalancer.Ingress = append(object.Status.LoadBalancer.Ingress, converted)
	}
	return object
}

func fromStatus(status *v1.LoadBalancerStatus) *provider.LoadBalancerStatus {
	converted := &provider.LoadBalancerStatus{}
	if status == nil {
		return converted
	}
	for _, ingress := range status.Ingress {
		one := provider.Ingress{IP: ingress.IP, Hostname: ingress.Hostname, IPMode: provider.IPMode(orEmpty(ingress.IPMode))}
		for _, port := range ingress.Ports {
			one.Ports = append(one.Ports, provider.PortStatus{
				Port: uint16(port.Port), Protocol: provider.Protocol(port.Protocol), Error: orEmpty(port.Error),
			})
		}
		converted.Ingress = append(converted.Ingress, one)
	}
	return converted
}

func orNil[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return &text
}

func orEmpty[T ~string](text *T) T {
	if text == nil {
		return ""
	}
	return *text
}
