package computeserver

import (
	"crypto/sha256"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// describe says what this server is and how it fares.
func (s *Server) describe() *rpcv1.DescribeComputeReply {
	reply := s.core.Describe()
	reply.Version = s.cfg.Version
	for _, p := range s.cfg.Paths {
		reply.Paths = append(reply.Paths, &rpcv1.MemoryPath{Server: uint32(p.Server), Provider: p.Provider, Device: p.Device})
	}
	return reply
}

// withoutKeys is what /describe shows of a description: whoever reaches the port of the metrics may
// see it, so it has no keys. In the place of bounds stand their digests, by which one who knows the
// partition map can tell which ranges these are.
func withoutKeys(d *rpcv1.DescribeComputeReply) *rpcv1.DescribeComputeReply {
	for _, r := range d.Ranges {
		r.Start, r.End = keyDigest(r.Start), keyDigest(r.End)
	}
	for _, o := range d.TakeOvers {
		o.Start, o.End = keyDigest(o.Start), keyDigest(o.End)
	}
	if d.Load != nil {
		d.Load.Keys = nil
	}
	return d
}

// keyDigest is the first 8 bytes of the SHA-256 of a key; that of an empty one is empty.
func keyDigest(key []byte) []byte {
	if len(key) == 0 {
		return nil
	}
	sum := sha256.Sum256(key)
	return sum[:8]
}
