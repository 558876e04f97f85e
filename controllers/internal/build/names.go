// Package build makes the objects of the operator: one file an object, one pure function each.
package build

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Names of what is made for an index or a pool.
func ConfigMapName(index string) string   { return index + "-config" }
func ConnectionName(index string) string  { return index + "-conn" }
func AuthName(index string) string        { return index + "-auth" }
func UsersName(index string) string       { return index + "-users" }
func ObjectsName(index string) string     { return index + "-dmusers" }
func UserSecretName(user string) string   { return user + "-user" }
func AuthorityName(of string) string      { return of + "-ca" }
func ServerTLSName(pool string) string    { return pool + "-tls" }
func PoolName(index, name string) string  { return index + "-" + name }
func PodName(pool string, id int) string  { return pool + "-" + strconv.Itoa(id) }
func Host(pod, pool, ns string) string    { return fmt.Sprintf("%s.%s.%s.svc", pod, pool, ns) }
func at(host string, port int) string     { return host + ":" + strconv.Itoa(port) }
func Control(pod, pool, ns string) string { return at(Host(pod, pool, ns), config.PortControl) }
func RPC(pod, pool, ns string) string     { return at(Host(pod, pool, ns), config.PortRPC) }
func RESP(pod, pool, ns string) string    { return at(Host(pod, pool, ns), config.PortRESP) }

// IsPodName reports whether a name is one that pods of a pool have.
func IsPodName(pool, name string) bool {
	number, ok := strings.CutPrefix(name, pool+"-")
	id, err := strconv.Atoi(number)
	return ok && err == nil && id >= 0 && name == PodName(pool, id)
}

// MaxVolume is the highest number of a volume of a memory pool: server ids in global addresses have
// room for no more. A pod with such a number in its name was made for the volume of that number.
// Pods with higher numbers were made as further copies of a volume.
const MaxVolume = 1023

// MemoryServerID is the number of a memory server in the global addresses of an index: it follows
// from the pool's position in the index and the volume's number in the pool, so that no table is
// needed.
func MemoryServerID(ordinal, volume int) uint16 { return uint16(ordinal*(MaxVolume+1) + volume + 1) }

// MemoryServerVolume is the reverse of MemoryServerID.
func MemoryServerVolume(id uint16) (ordinal, volume int) {
	n := int(id) - 1
	return n / (MaxVolume + 1), n % (MaxVolume + 1)
}

// ComputeServerID is the number of a compute server in the partition map.
func ComputeServerID(ordinal, pod int) uint32 { return uint32(ordinal*1_000_000 + pod + 1) }

// selector is what the pods of a pool, and only those, have.
func selector(pool, component string) map[string]string {
	return map[string]string{dmv1.LabelName: "dmindex", dmv1.LabelComponent: component, dmv1.LabelPool: pool}
}

func meta(name, namespace string, labels map[string]string) metav1.ObjectMeta {
	all := map[string]string{dmv1.LabelName: "dmindex", dmv1.LabelManagedBy: dmv1.ManagedBy}
	maps.Copy(all, labels)
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: all}
}
