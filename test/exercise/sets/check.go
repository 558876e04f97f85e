package sets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Check reads everything, when nobody works any more and all servers are there, and returns what
// was wrong now or before.
func (l *Load) Check(ctx context.Context) error {
	c := &conn{o: &l.o}
	defer c.close()
	l.mu.Lock()
	late := l.late
	l.mu.Unlock()
	time.Sleep(time.Until(late))
	for i := range l.o.Shared {
		l.until(ctx, func() outcome { return l.look(c, &l.members[i], []string{"ZSCORE", Set, l.members[i].key}) })
		l.until(ctx, func() outcome { return l.look(c, &l.counters[i], []string{"GET", l.counters[i].key}) })
		l.until(ctx, func() outcome { return l.balance(c, &l.accounts[i]) })
	}
	// A server that was killed may have left a change pending, which has no entry yet. It is made
	// by whoever reads the items.
	l.read(ctx, c, "ZCARD", Set)
	scores := map[string]string{}
	for _, pair := range l.pairs(l.read(ctx, c, "ZRANGE", Set, "0", "-1", "WITHSCORES")) {
		if _, twice := scores[pair[0]]; twice {
			l.report(fmt.Errorf("ZRANGE shows %q twice", pair[0]))
		}
		scores[pair[0]] = pair[1]
	}
	if r := l.read(ctx, c, "ZCARD", Set); r.text != fmt.Sprint(len(scores)) {
		l.report(fmt.Errorf("ZCARD is %s, and ZRANGE shows %d members", r.text, len(scores)))
	}
	seen := 0
	for cursor := "0"; ; {
		r := l.read(ctx, c, "ZSCAN", Set, cursor, "COUNT", "1000")
		if len(r.all) != 2 {
			break // it was reported
		}
		for _, pair := range l.pairs(r.all[1]) {
			if seen++; scores[pair[0]] != pair[1] {
				l.report(fmt.Errorf("ZSCAN shows %q with %s, ZRANGE with %q", pair[0], pair[1], scores[pair[0]]))
			}
		}
		if cursor = r.all[0].text; cursor == "0" {
			break
		}
	}
	if seen != len(scores) {
		l.report(fmt.Errorf("ZSCAN shows %d members, ZRANGE %d", seen, len(scores)))
	}
	known := map[string]bool{Anchor: true}
	for _, own := range l.own {
		for _, m := range own {
			if known[m.name] = true; !slices.Contains(m.may, scores[m.name]) {
				l.report(fmt.Errorf("%q has the score %q, and may have %q", m.name, scores[m.name], m.may))
			}
		}
	}
	for i := range l.members {
		m := &l.members[i]
		if known[m.key] = true; m.acked.Load() > 0 && scores[m.key] == "" {
			l.report(fmt.Errorf("ZRANGE does not show %q", m.key))
		}
	}
	for name := range scores {
		if !known[name] {
			l.report(fmt.Errorf("ZRANGE shows %q, which nobody added", name))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(append(slices.Clone(l.errs), ctx.Err())...)
}

// until tries until something is done.
func (l *Load) until(ctx context.Context, try func() outcome) {
	for ctx.Err() == nil && !l.tooMany() && try() != done {
		time.Sleep(20 * time.Millisecond)
	}
}

func (l *Load) tooMany() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.errs) == mostErrors
}

// read asks until there is an answer.
func (l *Load) read(ctx context.Context, c *conn, command ...string) (r reply) {
	l.until(ctx, func() (is outcome) {
		r, is = l.ask(c, command)
		return is
	})
	return r
}

// pairs are members with their scores.
func (l *Load) pairs(r reply) (all [][2]string) {
	if len(r.all)%2 != 0 {
		l.report(fmt.Errorf("%d texts are no pairs", len(r.all)))
		return nil
	}
	for i := 0; i < len(r.all); i += 2 {
		all = append(all, [2]string{r.all[i].text, r.all[i+1].text})
	}
	return all
}
