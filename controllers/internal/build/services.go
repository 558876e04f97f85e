package build

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Headless is the Service that gives the pods of a pool their names, ready or not.
func Headless(pool, namespace, component string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: meta(pool, namespace, selector(pool, component))}
	s.Spec = corev1.ServiceSpec{
		ClusterIP:                corev1.ClusterIPNone,
		PublishNotReadyAddresses: true,
		Selector:                 selector(pool, component),
		Ports:                    []corev1.ServicePort{servicePort("metrics", config.PortMetrics)},
	}
	return s
}

// ClientService is where programs find an index: any compute server that is ready, of any of its
// pools.
func ClientService(index *dmv1.DMIndex) *corev1.Service {
	s := &corev1.Service{ObjectMeta: meta(index.Name, index.Namespace, map[string]string{dmv1.LabelIndex: index.Name})}
	s.Annotations = beside(nil, index.Spec.Endpoints.Service.Annotations)
	s.Spec = corev1.ServiceSpec{
		Type: index.Spec.Endpoints.Service.Type,
		Selector: map[string]string{
			dmv1.LabelName: "dmindex", dmv1.LabelComponent: dmv1.ComponentCompute, dmv1.LabelIndex: index.Name,
		},
		Ports: []corev1.ServicePort{servicePort("resp", config.PortRESP), servicePort("rpc", config.PortRPC)},
	}
	return s
}

func servicePort(name string, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromString(name), Protocol: corev1.ProtocolTCP}
}
