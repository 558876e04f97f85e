package core

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// chip is a provider that has the first bytes of the lock region in a NIC.
type chip struct {
	verbs.Server
	bytes int
}

func (c chip) OnChip() int { return c.bytes }

// TestLockParts: locks go to the chip while there is room, else to host memory, never to both; who
// asks for host memory gets that.
func TestLockParts(t *testing.T) {
	const locks, onChip = 64, 24
	a, err := NewAccounts(env.Real(), nil, ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: 8, Slots: 8, Locks: locks})
	if err != nil {
		t.Fatal(err)
	}
	c := New(env.Real(), a, nil, make([]byte, 2*locks), time.Second, nil)
	f := func(index string, asked uint64, host bool, want string) {
		t.Helper()
		err := a.Change(Grow, func(l *ledger.Ledger) error {
			_, err := l.AdmitIn(index, 1, asked, c.LockParts(host)...)
			return err
		})
		got := ""
		if err == nil {
			a.Read(func(l *ledger.Ledger) {
				i, _ := l.Index(index)
				got = fmt.Sprintf("%d at %d, %d on the chip", i.Locks, i.FirstLock, c.OnChipOf(&i))
			})
		} else if errors.Is(err, ledger.ErrExhausted) {
			got = "exhausted"
		}
		if got != want {
			t.Errorf("%s: %s (%v), want %s", index, got, err, want)
		}
	}
	c.Offer(Provider{Name: "ibv", Server: chip{bytes: 2 * onChip}})
	f("a", 16, false, "16 at 0, 16 on the chip")
	f("b", 12, false, "12 at 24, 0 on the chip") // 8 are left on the chip
	f("c", 8, true, "8 at 36, 0 on the chip")
	f("d", 8, false, "8 at 16, 8 on the chip")
	f("e", 24, true, "exhausted")
	f("f", 0, false, "4 at 44, 0 on the chip")
	c.Providers[0].Server = chip{bytes: 2 * 4} // a NIC with less memory, after a restart
	f("a", 0, false, "16 at 0, 4 on the chip")
	c.Providers[0].Server = chip{bytes: 2 * locks}
	f("g", 0, true, "exhausted")
	f("h", 4, false, "4 at 48, 4 on the chip")
}
