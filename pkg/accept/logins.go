package accept

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Penalty is how long a host that fails to log in waits for its next attempts.
const Penalty = time.Second

// MostWrong is how many wrong passwords a connection may show before it ends, whether or not it has
// shown a right one. Else one connection, with one wait, could try as many as it can send.
const MostWrong = 16

// Bounds of Logins.
const (
	freeFailures = 10              // of a host, for programs whose password has just changed
	mostFailures = 20              // that count: a minute after the last one the host is free again
	forgiveEvery = 6 * time.Second // a failure counts no more
	maxHosts     = 4096            // the host that failed longest ago is forgotten
)

// Logins slows down hosts that fail to log in. A host that failed more than a few times waits with
// its next connections, before their password is looked at: an answer that came at once would tell
// a right password from a wrong one. No host is locked out, since many programs may share an
// address with an attacker. How many attempts wait at once is for the Lobby to bound. Safe for
// concurrent use.
type Logins struct {
	now     func() time.Duration // a clock that never goes back
	penalty time.Duration

	mu    sync.Mutex
	total uint64
	hosts map[netip.Prefix]*list.Element
	order list.List // of *failures, the last that failed at the back
}

type failures struct {
	host  netip.Prefix
	count int
	since time.Duration // when one of them was forgiven last
}

// NewLogins asks now for the time. Hosts wait for penalty, which is Penalty but in tests.
func NewLogins(now func() time.Duration, penalty time.Duration) *Logins {
	return &Logins{now: now, penalty: penalty, hosts: map[netip.Prefix]*list.Element{}}
}

// Wait is how long the next attempt of a host has to wait.
func (l *Logins) Wait(from net.Addr) time.Duration {
	host := hostOf(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.hosts[host]
	if at == nil {
		return 0
	}
	f := at.Value.(*failures)
	l.forgiveLocked(f)
	if f.count == 0 {
		l.forgetLocked(at)
	}
	if f.count < freeFailures {
		return 0
	}
	return l.penalty
}

// Failed notes that a host failed to log in.
func (l *Logins) Failed(from net.Addr) {
	host := hostOf(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	at := l.hosts[host]
	if at == nil {
		if len(l.hosts) >= maxHosts {
			l.forgetLocked(l.order.Front())
		}
		at = l.order.PushBack(&failures{host: host, since: l.now()})
		l.hosts[host] = at
	}
	l.order.MoveToBack(at)
	f := at.Value.(*failures)
	l.forgiveLocked(f)
	f.count = min(f.count+1, mostFailures)
}

// Total is how many logins failed, ever.
func (l *Logins) Total() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// forgiveLocked forgives what was long enough ago.
func (l *Logins) forgiveLocked(f *failures) {
	n := int((l.now() - f.since) / forgiveEvery)
	f.count = max(f.count-n, 0)
	f.since += time.Duration(n) * forgiveEvery
}

func (l *Logins) forgetLocked(at *list.Element) {
	delete(l.hosts, at.Value.(*failures).host)
	l.order.Remove(at)
}
