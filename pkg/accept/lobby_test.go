package accept

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// guests are connections in a lobby, by name, and which of them had to leave.
type guests struct {
	lobby  *Lobby
	places map[string]*Place

	mu   sync.Mutex
	left []string
}

func (g *guests) enter(name, address string) {
	g.places[name] = g.lobby.Enter(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.left = append(g.left, name)
	})
}

func (g *guests) expect(t *testing.T, what string, left ...string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Equal(g.left, left) {
		t.Errorf("%s: %q had to leave, want %q", what, g.left, left)
	}
	if got := g.lobby.Ended(); got != uint64(len(left)) {
		t.Errorf("%s: %d are counted, want %d", what, got, len(left))
	}
}

func newGuests(most int, limit time.Duration) *guests {
	return &guests{lobby: NewLobby(most, limit), places: map[string]*Place{}}
}

// TestLobbyEvictsTheHostWithMost: one host that opens connections without end evicts its own.
func TestLobbyEvictsTheHostWithMost(t *testing.T) {
	g := newGuests(4, 0)
	g.enter("honest", "10.0.0.1:1000")
	var want []string
	for i := range 100 {
		name := fmt.Sprint("flood", i)
		g.enter(name, fmt.Sprintf("10.0.0.2:%d", 1000+i))
		if i >= 3 {
			want = append(want, fmt.Sprint("flood", i-3))
		}
	}
	g.expect(t, "a flood of one host", want...)
	if !g.places["honest"].Leave() {
		t.Error("the honest connection lost its place")
	}
	if g.places["honest"].Leave() || g.places["flood0"].Leave() {
		t.Error("a place is given up twice")
	}
	if n := g.lobby.Open(); n != 3 {
		t.Errorf("%d places are taken, want 3", n)
	}
}

// TestLobbyEvictsTheOldest: of several hosts with as many, the one with the oldest connection gives
// it up. All addresses of a network of IPv6 are one host.
func TestLobbyEvictsTheOldest(t *testing.T) {
	g := newGuests(3, 0)
	g.enter("a", "10.0.0.1:1")
	g.enter("b", "10.0.0.2:1")
	g.enter("c", "10.0.0.3:1")
	g.enter("d", "10.0.0.4:1")
	g.expect(t, "four hosts", "a")
	g = newGuests(3, 0)
	g.enter("v4", "10.0.0.1:1")
	g.enter("v6", "[2001:db8::1]:1")
	g.enter("v6 of the same network", "[2001:db8::ffff:1]:1")
	g.enter("v4 mapped", "[::ffff:10.0.0.9]:1")
	g.expect(t, "two of one network", "v6")
}

// TestLobbyLimit: a connection leaves at the limit by the clock, whatever came and went meanwhile;
// one that left before is not ended.
func TestLobbyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuests(100, 10*time.Second)
		g.enter("silent", "10.0.0.1:1")
		g.enter("honest", "10.0.0.1:2")
		at := func(d time.Duration, left ...string) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			g.expect(t, "at the limit", left...)
		}
		at(5 * time.Second)
		g.places["honest"].Leave()
		g.enter("later", "10.0.0.1:3")
		at(5*time.Second - 1)
		at(1, "silent")
		at(5*time.Second, "silent", "later")
		at(time.Hour, "silent", "later")
		if n := g.lobby.Open(); n != 0 {
			t.Errorf("%d places are taken, want none", n)
		}
	})
}

// TestLobbyOfOtherAddresses: addresses without a port are one host.
func TestLobbyOfOtherAddresses(t *testing.T) {
	l := NewLobby(1, 0)
	ended := 0
	l.Enter(&net.UnixAddr{Name: "@", Net: "unix"}, func() { ended++ })
	l.Enter(nil, func() {})
	if ended != 1 || l.Open() != 1 {
		t.Errorf("%d were ended and %d are open, want 1 and 1", ended, l.Open())
	}
}
