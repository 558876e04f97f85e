package tcp

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// BenchmarkList is what the server does for a list between two system calls: unchecked, checked,
// and with a journal that no copy gets, as servers have it.
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
			reach := checkedReach(mem)(verbs.Peer{})
			for kind, s := range map[string]*session{
				"unchecked": {space: space},
				"checked":   {space: space, reach: reach, checked: true},
				"no copy":   {space: space, reach: reach, checked: true, journal: verbs.NewJournal(env.Real(), nil)},
			} {
				b.Run(fmt.Sprintf("%dx%d/%s", n, size, kind), func(b *testing.B) {
					s.out = make([]byte, 0, outBuffer)
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
