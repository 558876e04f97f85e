package computeserver

import (
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

// describe says what this server is and how it fares.
func (s *Server) describe() *rpcv1.DescribeComputeReply {
	reply := s.core.Describe()
	reply.Version, reply.SettingsRefused = s.cfg.Version, s.settingsRefused()
	if s.cfg.Paths != nil {
		for _, p := range s.cfg.Paths() {
			reply.Paths = append(reply.Paths, &rpcv1.MemoryPath{Server: uint32(p.Server), Provider: p.Provider, Device: p.Device})
		}
	}
	return reply
}

// withoutKeys is what /describe shows of a description: whoever reaches the port of the metrics may
// see it, so it has no keys. In the place of bounds stand their digests, by which the status of the
// index names them too.
func withoutKeys(d *rpcv1.DescribeComputeReply, hider keyrange.Hider) *rpcv1.DescribeComputeReply {
	for _, r := range d.Ranges {
		r.Start, r.End, r.Reason = hider.Digest(r.Start), hider.Digest(r.End), hider.Text(r.Reason)
	}
	for _, o := range d.TakeOvers {
		o.Start, o.End = hider.Digest(o.Start), hider.Digest(o.End)
	}
	if d.Load != nil {
		d.Load.Keys = nil
	}
	d.DataLost = hider.Text(d.DataLost)
	return d
}
