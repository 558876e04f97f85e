package accept

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

func from(address string) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1))
}

// TestLogins: a host waits once it failed too often, others do not, and after a minute it is free.
func TestLogins(t *testing.T) {
	now := time.Hour
	l := NewLogins(func() time.Duration { return now }, Penalty)
	bad, good := from("10.0.0.1"), from("10.0.0.2")
	expect := func(what string, a net.Addr, want time.Duration) {
		t.Helper()
		if got := l.Wait(a); got != want {
			t.Errorf("%s: the wait is %v, want %v", what, got, want)
		}
	}
	for range freeFailures {
		expect("before the limit", bad, 0)
		l.Failed(bad)
	}
	expect("at the limit", bad, Penalty)
	expect("another host", good, 0)
	for range 1000 {
		l.Failed(bad)
	}
	expect("after many", bad, Penalty)
	now += time.Minute
	expect("a minute later", bad, Penalty)
	now += forgiveEvery
	expect("when one more is forgiven", bad, 0)
	l.Failed(bad)
	expect("the next failure", bad, Penalty)
	now += time.Hour
	expect("an hour later", bad, 0)
	if len(l.hosts) != 0 || l.order.Len() != 0 {
		t.Errorf("%d hosts are remembered", len(l.hosts))
	}
	if got := l.Total(); got != freeFailures+1001 {
		t.Errorf("%d failures are counted", got)
	}
}

// TestLoginsOfManyHosts: so many hosts are remembered, those that failed last.
func TestLoginsOfManyHosts(t *testing.T) {
	l := NewLogins(func() time.Duration { return 0 }, Penalty)
	host := func(i int) net.Addr {
		return from(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String())
	}
	for i := range 2 * maxHosts {
		for range freeFailures {
			l.Failed(host(i))
		}
	}
	if len(l.hosts) != maxHosts || l.order.Len() != maxHosts {
		t.Errorf("%d hosts are remembered, want %d", len(l.hosts), maxHosts)
	}
	if l.Wait(host(maxHosts-1)) != 0 || l.Wait(host(maxHosts)) != Penalty {
		t.Error("not those that failed last are remembered")
	}
}
