package index

import (
	"fmt"
	"slices"
	"strings"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// memoryObserved is a memory server as it was seen just now.
type memoryObserved struct {
	id          uint16
	pod         string
	gone        bool // its pod is being deleted, or will never run again
	answered    bool
	incarnation uint64
}

// memoryServer is a memory server of the index and how it fares.
type memoryServer struct {
	id          uint16
	pod         string
	incarnation uint64
	state       dmv1.ServerState
	why         string // it is lost
}

// podGone is why most servers are lost.
const podGone = "its pod is gone"

// memoryVerdict is what is to be thought of an index's memory.
type memoryVerdict struct {
	// the index was made on these servers; else they are what it could be made on
	recorded bool
	servers  []memoryServer // ascending by id
}

// judgeMemory compares the memory servers that an index was made on with what is observed. recorded
// is nil before it was made; then wanted is how many it needs of each range of ids (by ordinal of
// the pool), and the lowest ones are taken.
func judgeMemory(recorded map[uint16]uint64, wanted []int, observed []memoryObserved, ordinal func(uint16) int, podName func(uint16) string) memoryVerdict {
	slices.SortFunc(observed, func(a, b memoryObserved) int { return int(a.id) - int(b.id) })
	if recorded == nil {
		return proposeMemory(wanted, observed, ordinal)
	}
	v := memoryVerdict{recorded: true}
	for id, incarnation := range recorded {
		s := memoryServer{id: id, pod: podName(id), incarnation: incarnation, state: dmv1.ServerLost, why: podGone}
		for _, o := range observed {
			if o.id != id {
				continue
			}
			switch {
			case o.gone:
			case !o.answered:
				s.state, s.why = dmv1.ServerUnreachable, ""
			case o.incarnation != incarnation:
				s.why = "it came back without its content"
			default:
				s.state, s.why = dmv1.ServerReady, ""
			}
		}
		v.servers = append(v.servers, s)
	}
	slices.SortFunc(v.servers, func(a, b memoryServer) int { return int(a.id) - int(b.id) })
	return v
}

func proposeMemory(wanted []int, observed []memoryObserved, ordinal func(uint16) int) (v memoryVerdict) {
	taken := make([]int, len(wanted))
	for _, o := range observed {
		n := ordinal(o.id)
		if o.gone || n >= len(wanted) || taken[n] == wanted[n] {
			continue
		}
		taken[n]++
		s := memoryServer{id: o.id, pod: o.pod, incarnation: o.incarnation, state: dmv1.ServerStarting}
		if o.answered {
			s.state = dmv1.ServerReady
		}
		v.servers = append(v.servers, s)
	}
	return v
}

// with are the servers in a state.
func (v memoryVerdict) with(state dmv1.ServerState) (servers []memoryServer) {
	for _, s := range v.servers {
		if s.state == state {
			servers = append(servers, s)
		}
	}
	return servers
}

// names lists servers for people.
func names(servers []memoryServer) string {
	var list []string
	for _, s := range servers {
		text := fmt.Sprintf("memory server %d (pod %s)", s.id, s.pod)
		if s.why != "" {
			text += ": " + s.why
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}
