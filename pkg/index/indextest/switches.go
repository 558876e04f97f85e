package indextest

import (
	"fmt"
	"maps"
	"math/bits"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// mostSwitches are those of which all combinations are tested.
const mostSwitches = 2

// combinations are settings of switches: all, or of many switches, those with the first ones off,
// and those with one off. In short tests it is only the former, and of many switches only that with
// one off, with half of them, and with all; without that of all on, which the rest of the suite
// runs.
func combinations(names []string) (all []map[string]bool) {
	for set := range 1 << len(names) {
		first, one, many := set&(set+1) == 0, set&(set-1) == 0, len(names) > mostSwitches
		if !first && (testing.Short() || many && !one) {
			continue
		}
		if n := bits.OnesCount(uint(set)); testing.Short() && (n == 0 || many && n != 1 && n != len(names)/2 && n != len(names)) {
			continue
		}
		c := map[string]bool{}
		for i, name := range names {
			c[name] = set>>i&1 == 0
		}
		all = append(all, c)
	}
	return all
}

// turnedOff names a combination by what it turns off.
func turnedOff(names []string, c map[string]bool) string {
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
	for i, c := range all {
		v := *r
		v.brief = true
		if len(names) > mostSwitches {
			v.turn = 1 + i
		}
		v.options = func(o index.Options) index.Options { o.Switches = c; return o }
		if r.CostsWith != nil {
			v.Costs = r.CostsWith(c)
		}
		t.Run(turnedOff(names, c), func(t *testing.T) {
			t.Run("Linearizable", v.linearizable)
			if testing.Short() { // what follows is of one session
				return
			}
			t.Run("Cost", v.cost)
			t.Run("Model", v.model)
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
