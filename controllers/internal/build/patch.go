package build

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

// A patch of a template may change all of a pod that the operator does not rely on, and nothing
// else. So what may be changed is listed: fields that Kubernetes gets later are refused until
// somebody has thought about them. What has a field of its own in the template is refused with the
// name of that field: there is one place for each thing.
var (
	patchable = fieldSet("initContainers", "containers", "volumes", "securityContext", "dnsPolicy", "terminationGracePeriodSeconds",
		"shareProcessNamespace", "automountServiceAccountToken", "enableServiceLinks", "hostUsers", "preemptionPolicy", "readinessGates", "resourceClaims")

	// of the server's container
	patchableOfServer = fieldSet("envFrom", "volumeMounts", "ports", "securityContext", "lifecycle",
		"startupProbe", "livenessProbe", "readinessProbe", "terminationMessagePolicy")

	// insteadOf a field of the patch there is one of the pool, of a backup or of an index.
	insteadOf = map[string]string{
		"nodeSelector": "pod.nodeSelector", "tolerations": "pod.tolerations", "affinity": "pod.affinity",
		"topologySpreadConstraints": "pod.topologySpreadConstraints", "priorityClassName": "pod.priorityClassName",
		"schedulerName": "pod.schedulerName", "runtimeClassName": "pod.runtimeClassName", "serviceAccountName": "pod.serviceAccountName",
		"hostAliases": "pod.hostAliases", "dnsConfig": "pod.dnsConfig", "imagePullSecrets": "pod.imagePullSecrets",
		"imagePullPolicy": "pod.imagePullPolicy", "env": "pod.env", "resources": "pod.resources", "image": "image beside pod",
	}
)

func fieldSet(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// Patch changes a pod as the patch of a template says, by a strategic merge. The pod has one
// container, and is complete but for that. An error says what is wrong with the patch, and nothing
// was changed then.
func Patch(spec *corev1.PodSpec, patch *runtime.RawExtension) error {
	if patch == nil || len(patch.Raw) == 0 {
		return nil
	}
	if err := readable(patch.Raw); err != nil {
		return err
	}
	before, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	merged, err := strategicpatch.StrategicMergePatch(before, patch.Raw, corev1.PodSpec{})
	if err != nil {
		return fmt.Errorf("it cannot be merged: %w", err)
	}
	after := &corev1.PodSpec{}
	if err := json.Unmarshal(merged, after); err != nil {
		return fmt.Errorf("it makes no pod: %w", err)
	}
	// The merge puts new containers first. All that looks at a pod for the first time, people
	// included, takes the first one for the pod's own.
	slices.SortStableFunc(after.Containers, func(a, b corev1.Container) int {
		return rank(a.Name == spec.Containers[0].Name) - rank(b.Name == spec.Containers[0].Name)
	})
	if err := harmless(spec, after); err != nil {
		return err
	}
	*spec = *after
	return nil
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// readable reports an unknown field, a null, and a value of another type. A null deletes in a
// strategic merge, but kubectl apply and tools like it take it out before it gets here.
func readable(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var all any
	if err := d.Decode(&all); err != nil {
		return err
	}
	if err := noNulls(all, ""); err != nil {
		return err
	}
	if err := flatDirectives(all); err != nil {
		return err
	}
	stripped, err := json.Marshal(withoutDirectives(all))
	if err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(stripped, &corev1.PodSpec{})
	if err != nil {
		return err
	}
	if len(unknown) > 0 {
		return fmt.Errorf("%w: the spec of a pod has none such, look for a typing error", unknown[0])
	}
	return nil
}

func noNulls(value any, at string) error {
	switch v := value.(type) {
	case nil:
		return fmt.Errorf("%s is null, which kubectl apply leaves out: to take a field of the operator out, write $patch: replace into the object that has it, and all that is to be there", strings.TrimPrefix(at, "."))
	case map[string]any:
		// in order: a pool that is looked at again says the same
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := noNulls(v[key], at+"."+key); err != nil {
				return err
			}
		}
	case []any:
		for i, inner := range v {
			if err := noNulls(inner, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// flatDirectives reports a list of keys or elements that has an object or a list in it: the merge
// panics at these.
func flatDirectives(value any) error {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if key == "$retainKeys" || strings.HasPrefix(key, "$deleteFromPrimitiveList/") {
				names, isList := v[key].([]any)
				if !isList || slices.ContainsFunc(names, isNested) {
					return fmt.Errorf("%s must be a list of texts or numbers", key)
				}
			}
			if err := flatDirectives(v[key]); err != nil {
				return err
			}
		}
	case []any:
		for _, inner := range v {
			if err := flatDirectives(inner); err != nil {
				return err
			}
		}
	}
	return nil
}

// isNested reports whether a value of JSON is an object or a list.
func isNested(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// withoutDirectives is a patch without the keys that say how to merge.
func withoutDirectives(value any) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, inner := range v {
			if !strings.HasPrefix(key, "$") {
				kept[key] = withoutDirectives(inner)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, inner := range v {
			kept[i] = withoutDirectives(inner)
		}
		return kept
	}
	return value
}

// harmless reports the first change of a pod that would break it.
func harmless(before, after *corev1.PodSpec) error {
	ours := &before.Containers[0]
	if len(after.Containers) == 0 || after.Containers[0].Name != ours.Name {
		return fmt.Errorf("container %s is the server: it cannot be deleted or replaced", ours.Name)
	}
	if err := unchanged(before, after, patchable, ""); err != nil {
		return err
	}
	at := "of container " + ours.Name
	patched := &after.Containers[0]
	if err := unchanged(ours, patched, patchableOfServer, at); err != nil {
		return err
	}
	if a, b := after.TerminationGracePeriodSeconds, before.TerminationGracePeriodSeconds; a == nil || *a < *b {
		return fmt.Errorf("terminationGracePeriodSeconds must be at least %d, which a server may need to end: write more, or leave it out", *b)
	}
	for _, of := range []struct {
		what          string
		before, after any
	}{{"volume", before.Volumes, after.Volumes}, {"resource claim", before.ResourceClaims, after.ResourceClaims},
		{"mount", ours.VolumeMounts, patched.VolumeMounts}, {"port", ours.Ports, patched.Ports}} {
		if lost := missing(of.before, of.after); lost != "" {
			return fmt.Errorf("%s %s is the operator's: leave it as it is, and give yours another name", of.what, lost)
		}
	}
	for _, probe := range []struct {
		name          string
		before, after *corev1.Probe
	}{{"startupProbe", ours.StartupProbe, patched.StartupProbe}, {"livenessProbe", ours.LivenessProbe, patched.LivenessProbe},
		{"readinessProbe", ours.ReadinessProbe, patched.ReadinessProbe}} {
		if a, b := probe.before, probe.after; (a == nil) != (b == nil) || a != nil && !equality.Semantic.DeepEqual(a.ProbeHandler, b.ProbeHandler) {
			return fmt.Errorf("%s %s asks the server itself: change its periods and thresholds only", probe.name, at)
		}
	}
	for _, m := range patched.VolumeMounts {
		if own := slices.ContainsFunc(ours.VolumeMounts, func(o corev1.VolumeMount) bool { return o.MountPath == m.MountPath }); own {
			continue
		}
		for _, o := range ours.VolumeMounts {
			if within(m.MountPath, o.MountPath) || within(o.MountPath, m.MountPath) {
				return fmt.Errorf("mountPath %s hides, or lies in, %s, where the operator mounts volume %s: choose another path", m.MountPath, o.MountPath, o.Name)
			}
		}
	}
	if err := privileges(before, after); err != nil {
		return err
	}
	return sidecars(before, after)
}

// unchanged reports a field of a structure that is neither as it was nor in the list of those that
// may change.
func unchanged(before, after any, may map[string]bool, at string) error {
	b, a := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for i := range b.NumField() {
		name, _, _ := strings.Cut(b.Type().Field(i).Tag.Get("json"), ",")
		if may[name] || equality.Semantic.DeepEqual(b.Field(i).Interface(), a.Field(i).Interface()) {
			continue
		}
		what := strings.TrimSpace(name + " " + at)
		if field := insteadOf[name]; field != "" {
			return fmt.Errorf("%s is not changed by a patch: use %s", what, field)
		}
		return fmt.Errorf("%s is the operator's, the pod would not work with another one: leave it out", what)
	}
	return nil
}

// missing names the first element of a list that is not in another one as it is; empty if all are.
func missing(before, after any) string {
	b, a := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range b.Len() {
		found := false
		for j := range a.Len() {
			found = found || equality.Semantic.DeepEqual(b.Index(i).Interface(), a.Index(j).Interface())
		}
		if !found {
			return b.Index(i).FieldByName("Name").String()
		}
	}
	return ""
}

// within reports whether a path is another one, or lies in it.
func within(inner, outer string) bool {
	inner, outer = path.Clean(inner), path.Clean(outer)
	return inner == outer || outer == "/" || strings.HasPrefix(inner, outer+"/")
}

// privileges reports a server with RDMA that could not register its memory any more.
func privileges(before, after *corev1.PodSpec) error {
	if user := before.SecurityContext.RunAsUser; user == nil || *user != 0 {
		return nil
	}
	pod, c := after.SecurityContext, after.Containers[0].SecurityContext
	var user *int64
	if pod != nil {
		user = pod.RunAsUser
	}
	if c != nil && c.RunAsUser != nil {
		user = c.RunAsUser
	}
	if user == nil || *user != 0 {
		return fmt.Errorf("securityContext: servers with transport RDMA run as user 0, as no other user may pin memory: leave runAsUser as it is")
	}
	if c == nil || c.Capabilities == nil || !slices.Contains(c.Capabilities.Add, capIPCLock) {
		return fmt.Errorf("securityContext: servers with transport RDMA need capability %s to pin memory: leave it in capabilities.add", capIPCLock)
	}
	return nil
}

// sidecars reports a container of the user's that would be in the server's way.
func sidecars(before, after *corev1.PodSpec) error {
	ours := &before.Containers[0]
	if before.RestartPolicy == corev1.RestartPolicyNever && len(after.Containers) > 1 {
		return fmt.Errorf("container %s would keep the Job from ending: write it into initContainers, with restartPolicy: Always", after.Containers[1].Name)
	}
	names := map[string]bool{ours.Name: true}
	for _, c := range slices.Concat(after.Containers[1:], after.InitContainers) {
		if c.Name == "" || names[c.Name] {
			return fmt.Errorf("container %q needs a name that no other container of the pod has", c.Name)
		}
		names[c.Name] = true
		for _, port := range c.Ports {
			if slices.ContainsFunc(ours.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port.ContainerPort }) {
				return fmt.Errorf("port %d of container %s is the server's: choose another one", port.ContainerPort, c.Name)
			}
		}
		for _, m := range c.VolumeMounts {
			if own := slices.ContainsFunc(before.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }); own && !m.ReadOnly {
				return fmt.Errorf("container %s mounts volume %s, which is the server's: write readOnly: true", c.Name, m.Name)
			}
		}
	}
	return nil
}
