package index

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/pkg/partition"
)

// keyNames is how the status and events of an index name keys: as they are where spec.security says
// so, else by digests. Compute servers show the same digests on their port of the metrics.
type keyNames struct {
	show  bool
	hider partition.Hider
}

// noSalt is for an index whose authority is not known yet: nobody recognizes a key by its digest.
var noSalt = rand.Text()

// keys is how the index's keys are named.
func (s *scope) keys() *keyNames {
	n := &keyNames{show: s.index.Spec.Security.ShowKeys, hider: partition.Hider{Salt: []byte(noSalt)}}
	if s.authority != nil {
		if salt, err := build.KeySalt(s.authority); err == nil {
			n.hider.Salt = salt
		}
	}
	return n
}

// span is a range of keys for a note: long keys are cut.
func (n *keyNames) span(start, end []byte) string {
	if !n.show {
		return n.hider.Format(start, end)
	}
	const longest = 24
	return partition.Interval(start[:min(len(start), longest)], end[:min(len(end), longest)])
}

// text is a message that may name keys.
func (n *keyNames) text(message string) string {
	if n.show {
		return message
	}
	return n.hider.Text(message)
}

// start is how the status names where a range begins.
func (n *keyNames) start(r *dmv1.PartitionRange, key []byte) {
	r.Digest = hex.EncodeToString(n.hider.Digest(key))
	if n.show {
		r.Start = base64.StdEncoding.EncodeToString(key)
	}
}
