package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/sortedset"
)

// atRest lets the sweeper and the collector go over everything once, and then returns an error
// unless what is stored is whole: each member has its entry, and nothing is there but members of
// sets that have some.
func atRest(c *Engine) error {
	s, err := c.Sets(nil, true, time.Minute, 0)
	if err != nil {
		return err
	}
	type stored struct{ key, head []byte }
	var unmade []stored
	var shown []byte
	err = c.Scan(context.Background(), ScanRange{}, false, func(key, value []byte, is expiry.Mark) bool {
		if strings.HasPrefix(string(key), sortedset.Prefix) {
			shown = bytes.Clone(key)
		}
		if is.Type == expiry.SortedSet {
			unmade = append(unmade, stored{bytes.Clone(key), bytes.Clone(value)})
		}
		return true
	}, func() error { return nil })
	if shown != nil {
		return fmt.Errorf("a scan of users shows %q", shown)
	}
	for _, u := range unmade {
		err = errors.Join(err, s.Unmade(u.key, u.head))
	}
	if err != nil {
		return fmt.Errorf("remove heads of sets that are not made: %w", err)
	}
	for from := []byte{}; from != nil; {
		if from, _, err = s.Collect(from, nil); err != nil {
			return fmt.Errorf("collect: %w", err)
		}
	}
	heads, items, roots := map[string]string{}, map[string]int{}, map[string]string{}
	entries := map[string]bool{}
	type has struct{ number, member, score string }
	settled := map[has]string{}
	read := ScanRange{Inner: true}
	err = c.Scan(context.Background(), read, false, func(key, value []byte, is expiry.Mark) bool {
		if rest, ok := bytes.CutPrefix(key, []byte(sortedset.Prefix)); ok {
			switch number, rest := string(rest[:6]), rest[6:]; rest[0] {
			case 'm':
				items[number]++
				if value[0] > 1 {
					settled[has{number: number}] = "pending"
				}
				settled[has{number, string(rest[1:]), string(value[1:9])}] = string(value[9:])
			case 's':
				entries[number+string(rest[1:])] = true
			case 'z':
				roots[number] = string(value)
			}
		} else if is.Type == expiry.SortedSet {
			heads[string(key)] = string(value[1:7])
		}
		return true
	}, func() error { return nil })
	if err != nil {
		return fmt.Errorf("read all: %w", err)
	}
	for of, stamp := range settled {
		var bits uint64
		for _, b := range []byte(of.score) {
			bits = bits<<8 | uint64(b)
		}
		key := of.number + string(scoreKey(math.Float64frombits(bits))) + of.member + "\x00\x00" + stamp
		if stamp == "pending" || !entries[key] {
			return fmt.Errorf("member %q of %x has no entry, or its item is pending", of.member, of.number)
		}
	}
	for key, number := range heads {
		if roots[number] != key || items[number] == 0 {
			return fmt.Errorf("the set %q has the number %x, whose root is of %q, and %d members", key, number, roots[number], items[number])
		}
	}
	if len(entries) != len(settled) {
		return fmt.Errorf("%d entries of %d members", len(entries), len(settled))
	}
	if len(roots) != len(heads) {
		return fmt.Errorf("%d roots of %d sets", len(roots), len(heads))
	}
	for _, u := range unmade {
		var byScore, byMember []string
		show := func(to *[]string) func(p sortedset.Pair) bool {
			return func(p sortedset.Pair) bool { *to = append(*to, fmt.Sprintf("%s=%v", p.Member, p.Score)); return true }
		}
		err := errors.Join(s.ByScore(u.key, sortedset.All, false, 0, show(&byScore)), s.ByMember(u.key, sortedset.Ends{}, false, show(&byMember)))
		slices.Sort(byScore)
		if err != nil || !slices.Equal(byScore, byMember) {
			return fmt.Errorf("by score %q has %q, by member %q: %w", u.key, byScore, byMember, err)
		}
	}
	return nil
}

// scoreKey is how a score stands in the key of an entry.
func scoreKey(score float64) (key []byte) {
	bits := math.Float64bits(score)
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	for i := 56; i >= 0; i -= 8 {
		key = append(key, byte(bits>>i))
	}
	return key
}
