package tcp

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// BenchmarkList is what the server does for a list between two system calls, unchecked and checked.
func BenchmarkList(b *testing.B) {
	mem := verbstest.Memory(b, 16<<20, 4096)
	space, err := mapped.NewSpace(mem)
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{64, 1024} {
		for _, n := range []int{1, 32} {
			list := make([]verbs.Request, n)
			for i := range list {
				list[i] = verbs.Request{Op: verbs.Read, Remote: uint64(i) << 16, Local: make([]byte, size)}
			}
			frame := encodeList(list, 0, 1)
			h, err := decodeHeader(frame)
			if err != nil {
				b.Fatal(err)
			}
			for _, reach := range []*verbs.Reach{nil, checkedReach(mem)(verbs.Peer{})} {
				b.Run(fmt.Sprintf("%dx%d/checked=%v", n, size, reach != nil), func(b *testing.B) {
					s := &session{space: space, reach: reach, checked: reach != nil, out: make([]byte, 0, outBuffer)}
					for b.Loop() {
						s.out = s.out[:0]
						if err := s.list(&h, frame); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
