package build

import (
	"maps"
	"slices"
	"strings"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// reserved reports whether a key of labels or annotations is one of the operator's. They say what
// it decided, of which pod. Users copy them from pods into templates, and a pod that is made with
// dmindex.io/leaving is replaced by the next one at once. So the CRDs refuse such keys where users
// write labels and annotations of what is made for them. Objects that were there before that may
// have them all the same: what is made leaves them out.
func reserved(key string) bool { return strings.HasPrefix(key, dmv1.GroupVersion.Group+"/") }

// beside adds what users gave to labels or annotations of ours, which it does not change.
func beside(ours, given map[string]string) map[string]string {
	all := maps.Clone(given)
	maps.DeleteFunc(all, func(key, _ string) bool { return reserved(key) })
	if all == nil {
		return ours
	}
	maps.Copy(all, ours)
	return all
}

// ReservedOf are the labels and annotations of a template that are left out of its pods, ascending.
func ReservedOf(t *dmv1.PodTemplate) (keys []string) {
	for _, given := range []map[string]string{t.Labels, t.Annotations} {
		for key := range given {
			if reserved(key) && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}
