package computeserver

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// wholeReply reads one reply and returns its bytes.
func wholeReply(t testing.TB, in *bufio.Reader) string {
	t.Helper()
	if head, err := in.Peek(1); err != nil || head[0] != '-' {
		return readReply(t, in)
	}
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// modifying are commands that read a pair and change it in one step, with %s for their key. What is
// wrong with the arguments, or with the value, is said as Redis says it.
var modifying = []string{
	"INCR %s", "INCR %s", "INCRBY %s 40", "DECR %s", "DECRBY %s 2", "GET %s", "INCRBY %s -50", "DECRBY %s -3", "INCRBY %s 0",
	"INCRBY %s 9223372036854775807", "INCRBY %s 9223372036854775807", "INCR %s", "GET %s",
	"SET %s -9223372036854775808", "DECR %s", "INCRBY %s -1", "INCRBY %s 1", "DECRBY %s -9223372036854775808", "DECRBY %s 9223372036854775807",
	"INCRBY %s 9223372036854775808", "INCRBY %s 1.5", "INCRBY %s +1", "INCRBY %s 01", "INCRBY %s -0", "INCRBY %s ''", "INCRBY %s x", "DECRBY %s x", "INCRBY %s", "INCR %s 1",
	"SET %s 01", "INCR %s", "SET %s -0", "INCR %s", "SET %s ''", "INCR %s", "SET %s 12345678901234567890", "INCR %s", "SET %s _1", "DECR %s", "SET %s 1_", "DECR %s", "SET %s -", "INCR %s", "SET %s 1.5", "INCR %s", "SET %s 1e3", "INCR %s",
	"INCRBYFLOAT %s 2.5", "INCRBYFLOAT %s -0.1", "GET %s", "INCRBYFLOAT %s x", "INCRBYFLOAT %s ''", "INCRBYFLOAT %s 1e", "INCRBYFLOAT %s _1", "INCRBYFLOAT %s 1_", "INCRBYFLOAT %s 1__000", "INCRBYFLOAT %s nan", "INCRBYFLOAT %s inf", "INCRBYFLOAT %s -Infinity", "INCRBYFLOAT %s infinit",
	"DEL %s", "INCRBYFLOAT %s 0.1", "INCRBYFLOAT %s 0.2", "INCRBYFLOAT %s 0.0000000000000000049", "INCRBYFLOAT %s 0x1p4", "INCRBYFLOAT %s 0xA.8", "INCRBYFLOAT %s +.5", "INCRBYFLOAT %s 5.", "INCRBYFLOAT %s .", "INCRBYFLOAT %s 0x", "INCRBYFLOAT %s 0b1", "INCRBYFLOAT %s -1e20", "INCRBYFLOAT %s 1e20", "INCRBYFLOAT %s 1e300", "INCRBYFLOAT %s 1e-4940", "INCRBYFLOAT %s 1e4933", "INCRBYFLOAT %s 1e-4960", "INCRBYFLOAT %s 1e999999999999",
	"SET %s 3.0e3", "INCRBYFLOAT %s 200", "INCRBYFLOAT %s -3200", "SET %s -1", "INCRBYFLOAT %s 0.99999999999999999999", "SET %s -0.0", "INCRBYFLOAT %s -0", "SET %s hello", "INCRBYFLOAT %s 1", "SET %s ''", "INCRBYFLOAT %s 1",
	"SET %s 123456789.123456789", "INCRBYFLOAT %s 0.000000001", "SET %s 18446744073709551615", "INCRBYFLOAT %s 1", "INCRBYFLOAT %s 1", "SET %s 0.5", "INCRBYFLOAT %s 18446744073709551615",
	"DEL %s", "APPEND %s Hello", "APPEND %s ''", "APPEND %s _World", "GET %s", "APPEND %s", "DEL %s", "APPEND %s ''", "EXISTS %s", "GET %s",
	"DEL %s", "SETRANGE %s 0 ''", "SETRANGE %s 5 ''", "EXISTS %s", "SETRANGE %s -1 x", "SETRANGE %s -1 ''", "SETRANGE %s x y", "SETRANGE %s 3 abc", "GET %s", "SETRANGE %s 0 012", "SETRANGE %s 1 ''", "SETRANGE %s 5 long", "GET %s", "SETRANGE %s 9223372036854775807 ''", "SETRANGE %s 9223372036854775808 x", "SETRANGE %s 1",
	"DEL %s", "GETSET %s 1", "GETSET %s ''", "GETSET %s 2", "GETSET %s", "GETDEL %s", "GETDEL %s", "GET %s", "GETDEL %s x",
	"SET %s 1 GET", "SET %s 2 get", "SET %s 3 NX GET", "GET %s", "SET %s 4 GET XX", "GET %s", "DEL %s", "SET %s 5 XX GET", "GET %s", "SET %s 6 NX GET", "GET %s", "SET %s 7 GET NX XX", "SET %s 8 GET GET", "SET %s 9 GET KEEPTTL", "SET %s '' GET", "SET %s 1 GET", "SET %s 1 GET NOPE",
}

// words splits a command of modifying, whose arguments have no spaces; ” is empty.
func words(command string) []string {
	all := strings.Fields(command)
	for i, w := range all {
		if w == "''" {
			all[i] = ""
		}
	}
	return all
}

// TestModifyingAgainstRedis: what reads and changes in one step is answered byte by byte as a real
// redis-server answers, at the owner of the key and at another server, in RESP2 and RESP3, alone
// and in a pipeline.
func TestModifyingAgainstRedis(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	for _, protocol := range []string{"2", "3"} {
		p := newPair(t, c, protocol)
		p.askOnKeys(modifying)
		for range 40 {
			var all [][]string
			for range 1 + rnd.IntN(60) {
				// Digits that are appended to an exponent make numbers that are too long.
				key, exponents := []string{"b", "c", "y", "z"}[rnd.IntN(4)]+protocol, rnd.IntN(2) == 0
				draw := plainNumber
				if exponents {
					key, draw = key+"e", number
				}
				if rnd.IntN(3) == 0 {
					all = append(all, []string{"SET", key, draw(rnd)})
					continue
				}
				commands := [][]string{
					{"INCR", key}, {"DECRBY", key, draw(rnd)}, {"INCRBYFLOAT", key, draw(rnd)}, {"INCRBYFLOAT", key, draw(rnd)},
					{"GETSET", key, draw(rnd)}, {"GETDEL", key}, {"GET", key}, {"SET", key, draw(rnd), "GET", []string{"NX", "XX"}[rnd.IntN(2)]},
				}
				if !exponents {
					commands = append(commands, []string{"APPEND", key, fmt.Sprint(rnd.IntN(10))}, []string{"SETRANGE", key, fmt.Sprint(rnd.IntN(4)), draw(rnd)})
				}
				all = append(all, commands[rnd.IntN(len(commands))])
			}
			p.ask(all...)
		}
	}
	if n := c.servers[1].core.Count.Forwarded.Load(); n < 500 {
		t.Errorf("%d operations were forwarded; half of them belong to the other server", n)
	}
}

// number is one of few digits or many, perhaps a fraction or with an exponent.
func number(rnd *rand.Rand) string {
	if rnd.IntN(6) == 0 {
		return fmt.Sprintf("%.*e", rnd.IntN(20), rnd.NormFloat64())
	}
	return plainNumber(rnd)
}

// plainNumber is one without an exponent.
func plainNumber(rnd *rand.Rand) string {
	switch rnd.IntN(5) {
	case 0:
		return fmt.Sprint(rnd.Int64() >> rnd.IntN(60))
	case 1:
		return fmt.Sprint(-rnd.IntN(1000))
	case 2:
		return fmt.Sprintf("%.*f", rnd.IntN(20), rnd.NormFloat64()*float64(uint64(1)<<rnd.IntN(60)))
	case 3:
		return fmt.Sprintf("%d.%019d", rnd.IntN(1000), rnd.Uint64()>>1)
	}
	return fmt.Sprint(rnd.IntN(20))
}
