package indextest

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// mostSwitches are those of which all combinations are tested.
const mostSwitches = 4

// combinations are settings of switches: all, or of many switches, those with the first ones off,
// and those with one off; in short tests only the former.
func combinations(names []string) (all []map[string]bool) {
	for bits := range 1 << len(names) {
		first, one := bits&(bits+1) == 0, bits&(bits-1) == 0
		if !first && (testing.Short() || len(names) > mostSwitches && !one) {
			continue
		}
		c := map[string]bool{}
		for i, name := range names {
			c[name] = bits>>i&1 == 0
		}
		all = append(all, c)
	}
	return all
}

// off names a combination by what it turns off.
func off(names []string, c map[string]bool) string {
	var out []string
	for _, name := range names {
		if !c[name] {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return "all"
	}
	return "without " + strings.Join(out, ",")
}

// switched runs what depends on the switches, for each combination; and clients of different ones
// at the same index.
func (r *runner) switched(t *testing.T) {
	names := r.Design.Switches
	if _, err := r.Design.Open(r.cluster(t, 8).Open(t), index.Options{Uint64: true, Switches: map[string]bool{"no such switch": true}}); err == nil {
		t.Error("an unknown switch is accepted")
	} else {
		t.Log(err)
	}
	all := combinations(names)
	for _, c := range all {
		v := *r
		v.brief = true
		v.options = func(o index.Options) index.Options { o.Switches = c; return o }
		if r.CostsWith != nil {
			v.Costs = r.CostsWith(c)
		}
		t.Run(off(names, c), func(t *testing.T) {
			t.Run("Cost", v.cost)
			t.Run("Model", v.model)
			t.Run("Linearizable", v.linearizable)
			t.Run("Full", v.full)
		})
	}
	random := seeded(t)
	for i := range scale(2) {
		v := *r
		v.brief = true
		v.options = func(o index.Options) index.Options {
			o.Switches = maps.Clone(all[random.IntN(len(all))])
			return o
		}
		t.Run(fmt.Sprint("mixed ", i), v.linearizable)
	}
}
