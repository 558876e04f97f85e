//go:build e2e && ownnodes

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/dmindex/dmindex/deviceplugin/hca/sysfstest"
)

// poolWithRDMA: the pod of a pool with RDMA, which a restricted namespace refuses, gets its device
// from the plugin of the one node that has some left, with Guaranteed QoS. That device does not
// work: the pod does not end, and the pool says what to do. A pod for which no node has a device is
// named.
func (s *space) poolWithRDMA(node string) {
	s.Helper()
	s.rdmaPool("rdma", 1)
	s.poolReady("rdma", "PoolRefused", "violates PodSecurity")
	s.kubectl("label", "namespace", s.namespace, "--overwrite", "pod-security.kubernetes.io/enforce=privileged")
	s.poolReady("rdma", "NodeUnfit", "pod rdma-0 on node "+node+": no usable RDMA device")
	s.poolReady("rdma", "NodeUnfit", "they are in another network namespace; on the node run `rdma system set netns shared` before pods start")
	s.is(s.jsonpath("pod/rdma-0", `{.status.qosClass} {.spec.containers[0].resources.limits.dmindex\.io/rdma} {.status.phase} {.spec.containers[0].image}`),
		"Guaranteed 1 Running "+os.Getenv("IMAGE_RDMA"))
	s.is(s.jsonpath("dmmp/rdma", `{.status.servers[0].ready}`), "false")
	s.Logf("the pool:\n%s\n%s", s.kubectl("get", "dmmp/rdma", "-o", "wide"), s.jsonpath("dmmp/rdma", `{.status.servers[0].problem}`))
	s.rdmaPool("rdma", 2)
	s.eventually(long, "the second pod has no node", func() (bool, string) {
		got := s.jsonpath("pod/rdma-1", `{.status.conditions[?(@.type=="PodScheduled")].message}`)
		return strings.Contains(got, "Insufficient dmindex.io/rdma"), got
	})
	s.is(s.restarts("rdma-0"), "0")
	s.kubectl("delete", "dmmp/rdma", "--cascade=foreground", "--timeout=80s")
	s.has(node, 1, 1)
}

// refusedByKubelet: a device goes down when a pod is on its way to the node already. Its kubelet
// refuses the pod, the pool says so, and the operator makes another one, which starts once the
// device is back.
func (s *space) refusedByKubelet(number int, tree *sysfstest.Tree, device string) {
	s.Helper()
	node := fmt.Sprintf("node%d", number)
	plugin := s.system("get", "pods", "--selector="+pluginSelector, "--field-selector=spec.nodeName="+node, "--output=jsonpath={.items[0].metadata.name}")
	// it hears of nothing meanwhile; not for as long as would make its node NotReady
	s.node("freeze", fmt.Sprint(number))
	thaw := sync.OnceFunc(func() { s.node("thaw", fmt.Sprint(number)) })
	s.Cleanup(thaw)
	tree.SetState(device, 1, "1: DOWN")
	s.rdmaPool("refused", 1)
	s.eventually(short, "the plugin sees that the device is down, and the pod has a node", func() (bool, string) {
		saw, err := s.try("get", "--raw", "/api/v1/namespaces/"+target.system+"/pods/"+plugin+":9090/proxy/metrics")
		at := s.jsonpath("pod/refused-0", "{.spec.nodeName}")
		return err == nil && strings.Contains(saw, `hca_healthy{device="`+device+`",pci="0000:3b:00.0",resource="dmindex.io/rdma"} 0`) && at == node, "on node " + at + "\n" + saw
	})
	thaw()
	s.eventually(short, "the kubelet refuses the pod", func() (bool, string) {
		events, condition := s.kubectl("get", "events", "--field-selector=reason=UnexpectedAdmissionError,involvedObject.name=refused-0", "--output=jsonpath={.items[*].message}"),
			s.jsonpath("dmmp/refused", `{.status.conditions[?(@.type=="PoolReady")].message}`)
		return events != "", "the kubelet: " + events + "\nthe pool: " + condition
	})
	tree.SetState(device, 1, "4: ACTIVE")
	refused := strings.Fields(s.kubectl("get", "events", "--field-selector=reason=UnexpectedAdmissionError", "--output=jsonpath={.items[*].involvedObject.uid}"))
	// It may be another one or two that the kubelet refuses: it tells the scheduler of its devices
	// every ten seconds. The number of one that never ran, and so its name, is used again.
	s.poolReady("refused", "NodeUnfit", " on node "+node+": no usable RDMA device")
	s.eventually(short, "the refused pod is gone", func() (bool, string) {
		left := s.kubectl("get", "pods", "--selector=dmindex.io/pool=refused", "--output=jsonpath={.items[*].metadata.uid} {.items[*].status.phase}")
		there := slices.ContainsFunc(refused, func(uid string) bool { return strings.Contains(left, uid) })
		return strings.HasSuffix(left, " Running") && !there, left
	})
	s.kubectl("delete", "dmmp/refused", "--cascade=foreground", "--timeout=80s")
	s.has(node, 1, 1)
}

// rdmaPool is a pool of memory servers with RDMA.
func (s *space) rdmaPool(name string, servers int) {
	s.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: dmindex.io/v1alpha1
kind: DMMemoryPool
metadata: {name: %s}
spec:
  servers: %d
  memory: 64Mi
  transport: RDMA
  pod: {imagePullPolicy: IfNotPresent, resources: {limits: {cpu: 100m}}}
`, name, servers))
}

// poolReady waits until the condition PoolReady of a memory pool has a reason and a message.
func (s *space) poolReady(pool, reason, message string) {
	s.Helper()
	s.eventually(long, "PoolReady says "+reason+": "+message, func() (bool, string) {
		got := s.jsonpath("dmmp/"+pool, `{.status.conditions[?(@.type=="PoolReady")].reason} {.status.conditions[?(@.type=="PoolReady")].message}`)
		return strings.HasPrefix(got, reason+" ") && strings.Contains(got, message), got
	})
}
