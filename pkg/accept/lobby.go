package accept

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Lobby has the connections of a server that have not authenticated yet. Anybody who reaches the
// port can open them, so they have places of their own, and leave after a limit.
//
// Where all places are taken, a new connection gets the place of another one. Refusing new ones
// would be cheaper to abuse: as many silent connections as there are places, renewed at each limit,
// would keep everybody out. The host with most connections gives up its oldest one; of several such
// hosts, that with the oldest. An honest client authenticates at once, so a connection that has
// waited long is the most likely to be silent. So one host cannot evict the connections of others,
// and many hosts have to open as many connections as there are places in the time that an honest
// client takes.
//
// Safe for concurrent use.
type Lobby struct {
	most  int
	limit time.Duration
	ended atomic.Uint64

	mu    sync.Mutex
	hosts map[netip.Prefix]*list.List // of *Place, the oldest first; none is empty
	open  int
	came  uint64 // number of the last place
}

// Place is the place of one connection.
type Place struct {
	lobby *Lobby
	end   func()

	// Guarded by lobby.mu.
	host   netip.Prefix
	number uint64        // in the order in which they came
	at     *list.Element // nil once it has left
	timer  *time.Timer   // nil = there is no limit
}

// NewLobby has so many places. A connection may keep its place for limit; 0 = for ever.
func NewLobby(most int, limit time.Duration) *Lobby {
	return &Lobby{most: most, limit: limit, hosts: map[netip.Prefix]*list.List{}}
}

// Enter gives a connection a place. If the connection has to leave, end is called, once, by any
// goroutine: it closes the connection and does not wait.
func (l *Lobby) Enter(from net.Addr, end func()) *Place {
	p := &Place{lobby: l, end: end, host: hostOf(from)}
	l.mu.Lock()
	var evicted *Place
	if l.open >= l.most {
		evicted = l.nextLocked()
		evicted.leaveLocked()
	}
	l.came++
	p.number = l.came
	of := l.hosts[p.host]
	if of == nil {
		of = list.New()
		l.hosts[p.host] = of
	}
	p.at = of.PushBack(p)
	l.open++
	if l.limit > 0 {
		p.timer = time.AfterFunc(l.limit, p.expire)
	}
	l.mu.Unlock()
	if evicted != nil {
		l.ended.Add(1)
		evicted.end()
	}
	return p
}

// Leave gives the place up, and reports whether the connection still had it. If not, its end was
// called or is about to be.
func (p *Place) Leave() bool {
	p.lobby.mu.Lock()
	defer p.lobby.mu.Unlock()
	return p.leaveLocked()
}

// Open is how many places are taken.
func (l *Lobby) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Ended is how many connections had to leave, ever.
func (l *Lobby) Ended() uint64 { return l.ended.Load() }

func (p *Place) expire() {
	if p.Leave() {
		p.lobby.ended.Add(1)
		p.end()
	}
}

func (p *Place) leaveLocked() bool {
	if p.at == nil {
		return false
	}
	of := p.lobby.hosts[p.host]
	of.Remove(p.at)
	if of.Len() == 0 {
		delete(p.lobby.hosts, p.host)
	}
	p.at = nil
	p.lobby.open--
	if p.timer != nil {
		p.timer.Stop()
	}
	return true
}

// nextLocked is the place that is given up next: of the host with most, the oldest.
func (l *Lobby) nextLocked() (next *Place) {
	most := 0
	for _, of := range l.hosts {
		oldest := of.Front().Value.(*Place)
		if of.Len() > most || of.Len() == most && oldest.number < next.number {
			next, most = oldest, of.Len()
		}
	}
	return next
}

// hostOf is what an address has in common with others of its host: an IPv4 address, or a network of
// 64 bits, of which one host may have every address. Other addresses are of one host.
func hostOf(a net.Addr) netip.Prefix {
	if a == nil {
		return netip.Prefix{}
	}
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	p, _ := ip.Prefix(min(ip.BitLen(), 64))
	return p
}
