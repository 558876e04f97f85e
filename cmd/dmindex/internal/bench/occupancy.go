package bench

import (
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// wireHeader is what a message takes on the wire beside its payload, as package sim has it.
const wireHeader = 42

// Occupancy is the part of the time in which the NICs of the simulated memory servers are busy, on
// average, in the direction that is busier: by the message rate or the bandwidth, whichever says
// more. So a NIC at 100 % bounds the throughput.
func (r *Result) Occupancy() float64 {
	v, model := &r.Stats.Verbs, r.Run.model()
	var in, answers uint64
	for _, n := range v.Requests {
		in += n
	}
	answers = in - v.Requests[verbs.Write]
	busy := func(messages, payload uint64) float64 {
		rate := float64(messages) * float64(model.ServerMessage) / float64(time.Nanosecond)
		return max(rate, float64(messages*wireHeader+payload)/model.Bandwidth)
	}
	each := max(busy(in, v.Bytes[verbs.Write]), busy(answers, v.Bytes[verbs.Read])) / float64(r.Ops)
	return each * r.Throughput / 1e9 / float64(r.Run.MemoryServers)
}
