package grant

import (
	"fmt"
	"strings"
	"testing"
)

// show writes verdicts down, one claim a line.
func show(verdicts []Verdict) string {
	var lines []string
	for _, v := range verdicts {
		line := v.Object + ":"
		for _, s := range v.Steps {
			switch {
			case s.Evict:
				line += fmt.Sprintf(" evict %s from %s;", s.Identity, s.Server)
			default:
				line += fmt.Sprintf(" %s %d at %s", s.Identity, s.Chunks, s.Server)
				if s.HostLocks {
					line += " in host memory"
				}
				line += ";"
			}
		}
		for _, m := range v.Missing {
			line += fmt.Sprintf(" %s lacks %d of %d %s, %d left, %d kept;", m.Server, m.Lacks, m.Asked, m.What, m.Left, m.Kept)
		}
		for _, r := range v.Refused {
			line += fmt.Sprintf(" %s cannot lower to %d, %d used;", r.Server, r.Asked, r.Used)
		}
		for _, l := range v.Later {
			line += fmt.Sprintf(" %s has %s, which is later;", l.Server, l.Identity)
		}
		if len(v.Absent) > 0 {
			line += " waits for " + strings.Join(v.Absent, ",") + ";"
		}
		lines = append(lines, strings.TrimSuffix(line, ";"))
	}
	return strings.Join(lines, "\n")
}

func TestDecide(t *testing.T) {
	server := func(name string, held ...Held) Server {
		return Server{Name: name, Chunks: 64, Locks: 1024, OnChip: 256, Held: held}
	}
	claim := func(object string, since int64, chunks uint64, servers ...string) Claim {
		c := Claim{Object: object, Identity: object, Name: object, Since: since}
		for _, s := range servers {
			c.Wants = append(c.Wants, Want{Server: s, Chunks: chunks})
		}
		return c
	}
	with := func(c Claim, f func(*Claim)) Claim { f(&c); return c }
	served := func(c Claim) Claim { c.Served = true; return c }
	f := func(name string, servers []Server, want string, claims ...Claim) {
		t.Helper()
		if got := show(Decide(servers, claims)); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
		}
	}
	one := []Server{server("s")}
	f("new", one, "a: a 40 at s", claim("a", 1, 40, "s"))
	f("the oldest first, whatever their order", one, "a: a 40 at s\nb: s lacks 16 of 40 chunks, 24 left, 0 kept\nc: s lacks 8 of 8 chunks, 24 left, 24 kept",
		claim("c", 3, 8, "s"), claim("b", 2, 40, "s"), claim("a", 1, 40, "s"))
	f("what can never be keeps nobody waiting", one, "a: s lacks 6 of 70 chunks, 64 left, 0 kept\nb: b 64 at s", claim("a", 1, 70, "s"), claim("b", 2, 64, "s"))
	f("all or nothing", []Server{server("s"), server("t", Held{Identity: "x", Chunks: 60, Locks: 4})}, "a: t lacks 4 of 8 chunks, 4 left, 0 kept\nb: s lacks 1 of 57 chunks, 64 left, 8 kept\nc: s lacks 1 of 1 chunks, 64 left, 64 kept",
		claim("a", 1, 8, "s", "t"), claim("b", 2, 57, "s"), served(claim("c", 3, 1, "s")))
	f("raised", []Server{server("s", Held{Identity: "a", Chunks: 8, Used: 8})}, "a: a 16 at s", served(claim("a", 1, 16, "s")))
	f("lowered", []Server{server("s", Held{Identity: "a", Chunks: 8, Used: 4})}, "a: a 4 at s", served(claim("a", 1, 4, "s")))
	f("lowered too far", []Server{server("s", Held{Identity: "a", Chunks: 8, Used: 4})}, "a: s cannot lower to 3, 4 used", served(claim("a", 1, 3, "s")))
	f("what is lowered is free once the server says so", []Server{server("s", Held{Identity: "a", Chunks: 64})},
		"a: a 4 at s\nb: s lacks 4 of 4 chunks, 0 left, 0 kept", served(claim("a", 1, 4, "s")), claim("b", 2, 4, "s"))
	f("settled", []Server{server("s", Held{Identity: "a", Chunks: 8})}, "a:", claim("a", 1, 8, "s"))
	f("made anew", []Server{server("s", Held{Identity: "a", Chunks: 64})}, "a: evict a from s; s lacks 64 of 64 chunks, 0 left, 0 kept",
		with(claim("a", 1, 64, "s"), func(c *Claim) { c.Identity = "a/1" }))
	f("made anew, evicted", one, "a: a/1 64 at s", with(claim("a", 1, 64, "s"), func(c *Claim) { c.Identity = "a/1" }))
	f("what a later incarnation has is not taken back, nor anything else", []Server{server("s", Held{Identity: "a/2", Chunks: 40, Used: 39}), server("t", Held{Identity: "a", Chunks: 40})},
		"a: s has a/2, which is later", served(with(claim("a", 1, 64, "s", "t"), func(c *Claim) { c.Identity = "a/1" })))
	f("nor of an index that is new, as far as is known", []Server{server("s", Held{Identity: "a/10", Chunks: 40})}, "a: s has a/10, which is later\nb: b 24 at s", claim("a", 1, 40, "s"), claim("b", 2, 24, "s"))
	f("incarnations are numbers", []Server{server("s", Held{Identity: "a/9", Chunks: 40})}, "a: evict a/9 from s; s lacks 40 of 64 chunks, 24 left, 0 kept",
		with(claim("a", 1, 64, "s"), func(c *Claim) { c.Identity = "a/10" }))
	f("what cannot be read is nobody's to take back", []Server{server("s", Held{Identity: "a/x", Chunks: 40})}, "a: s has a/x, which is later",
		with(claim("a", 1, 64, "s"), func(c *Claim) { c.Identity = "a/10" }))
	f("leaving, of a namesake nothing", []Server{server("s", Held{Identity: "a/1", Chunks: 1}, Held{Identity: "a", Chunks: 1}, Held{Identity: "ab", Chunks: 1})},
		"a: evict a/1 from s; evict a from s", with(claim("a", 1, 64, "s"), func(c *Claim) { c.Leaving, c.Idle = true, true }))
	f("idle", []Server{server("s", Held{Identity: "a", Chunks: 60})}, "a:\nb: b 4 at s", with(claim("a", 1, 64, "s"), func(c *Claim) { c.Idle = true }), claim("b", 2, 4, "s"))
	f("draining", []Server{{Name: "s", Chunks: 64, Locks: 64, Draining: true}}, "a: s lacks 0 of 8 chunks, 64 left, 0 kept; s lacks 0 of 4 locks, 64 left, 0 kept; s lacks 0 of 1 places for indexes, 64 left, 0 kept",
		claim("a", 1, 8, "s"))
	f("nobody takes what one waits for that gives back what it had, since an older one waits, too", []Server{server("s", Held{Identity: "b", Chunks: 1, Locks: 4}), {Name: "t", Chunks: 64, Locks: 64, Draining: true}},
		"a: t lacks 0 of 1 chunks, 64 left, 0 kept; t lacks 0 of 4 locks, 64 left, 0 kept; t lacks 0 of 1 places for indexes, 64 left, 0 kept\nb: b 0 at s; s lacks 1 of 64 chunks, 63 left, 1 kept\nc: s lacks 1 of 1 chunks, 63 left, 63 kept",
		claim("a", 1, 1, "s", "t"), claim("b", 2, 64, "s"), claim("c", 3, 1, "s"))
	f("a server that is away", one, "a: waits for t\nb: b 64 at s", claim("a", 1, 8, "s", "t"), claim("b", 2, 64, "s"))
	f("a half admission is withdrawn for an older one", []Server{server("s", Held{Identity: "b", Chunks: 40}), server("t", Held{Identity: "x", Chunks: 64})},
		"a: s lacks 16 of 40 chunks, 24 left, 0 kept\nb: b 0 at s; t lacks 40 of 40 chunks, 0 left, 0 kept", claim("a", 1, 40, "s"), claim("b", 2, 40, "s", "t"))
	locks := func(n uint64) func(*Claim) { return func(c *Claim) { c.Wants[0].Locks = n } }
	f("locks: on the chip, then in host memory, then no more", one,
		"a: a 1 at s\nb: b 1 at s in host memory\nc: s lacks 400 of 700 locks, 300 left, 0 kept\nd: s lacks 4 of 4 locks, 300 left, 300 kept",
		with(claim("a", 1, 1, "s"), locks(200)), with(claim("b", 2, 1, "s"), locks(524)), with(claim("c", 3, 1, "s"), locks(700)), claim("d", 4, 1, "s"))
}

// TestShareOfLocks: how many locks an index gets that does not say is the server's matter, unless
// some are kept.
func TestShareOfLocks(t *testing.T) {
	servers := []Server{
		{Name: "s", Chunks: 64, Locks: 1024, OnChip: 512, Held: []Held{{Identity: "x", Chunks: 1, Locks: 16}}},
		{Name: "t", Chunks: 1, Locks: 8, Held: []Held{{Identity: "x", Chunks: 1, Locks: 4}}},
	}
	a := Claim{Object: "a", Identity: "a", Name: "a", Since: 1, Wants: []Want{{"s", 8, 512}}}
	b := Claim{Object: "b", Identity: "b", Name: "b", Since: 2, Wants: []Want{{"s", 8, 0}}}
	f := func(name string, want string) {
		t.Helper()
		v := Decide(servers, []Claim{a, b})[1]
		if got := fmt.Sprintf("%+v %d missing", v.Steps, len(v.Missing)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	f("nothing is kept", "[{Server:s Identity:b Evict:false Chunks:8 Had:0 Locks:0 HostLocks:true}] 0 missing")
	a.Wants = append(a.Wants, Want{"t", 1, 0})
	f("of 1008 locks 512 are kept, all of them on the chip", "[{Server:s Identity:b Evict:false Chunks:8 Had:0 Locks:60 HostLocks:true}] 0 missing")
	a.Wants[0].Locks = 1008
	f("all locks are kept", "[] 1 missing")
}
