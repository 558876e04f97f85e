//env:real serves connections of the machine's network, which no simulation has

// Package pubsub knows which subscribers of a server get which messages. How a message gets from
// server to server, and what is promised, is docs/design/pubsub.md.
package pubsub

import (
	"slices"
	"sync"
)

// Kind is what a subscription names.
type Kind uint8

// Kinds of subscriptions.
const (
	Channels Kind = iota // a channel of PUBLISH
	Patterns             // all channels of PUBLISH that match
	Shards               // a channel of SPUBLISH
	Kinds
)

// Message is a message on a channel. It is not changed once it was published.
type Message struct {
	Channel, Payload []byte
	Sharded          bool // of SPUBLISH
}

// Subscriber takes messages.
type Subscriber interface {
	// Push is given a message, and the subscription by which it comes. It is called by any
	// goroutine, with the table locked: it waits for nothing and keeps nothing of the message. Two
	// calls of Publish one after the other push in their order.
	Push(kind Kind, name string, m *Message)
}

// Pattern is which channels a pattern matches.
type Pattern struct {
	Matches func(channel []byte) bool
	Work    int    // how many comparisons Matches takes at most for each byte of a channel
	User    string // whose subscription made the topic: it takes of that user's share
}

// Bounds of names, so that a look at all patterns takes a bounded time.
const (
	MaxName     = 1 << 10         // bytes of a channel's name, and of a pattern
	MaxPatterns = 10_000          // different ones of a server
	MaxWork     = 8 * MaxPatterns // of these together
)

// shareFree is how many times what then stays free one user may take of each bound, as of buffers:
// one that takes all it may leaves a quarter of what was free.
const shareFree = 3

// share is what the patterns of one user take.
type share struct{ patterns, work int }

// Table is who has subscribed to what. The zero Table is empty. Safe for concurrent use.
type Table struct {
	mu    sync.RWMutex
	names [Kinds]map[string]*topic
	all   share
	users map[string]share
}

// topic is a name with subscribers; there is none without.
type topic struct {
	pattern     *Pattern // nil of other kinds
	subscribers []Subscriber
	at          map[Subscriber]int // in subscribers
}

// Subscribe adds a subscription; it is none if there is this one already. pattern is nil for other
// kinds. It reports false if there is no room for the pattern, in all or for its user, and does
// nothing then.
func (t *Table) Subscribe(kind Kind, name string, pattern *Pattern, s Subscriber) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.names[kind][name]
	if of == nil {
		if pattern != nil {
			if !t.roomLocked(pattern) {
				return false
			}
			t.takeLocked(pattern, 1)
		}
		if t.names[kind] == nil {
			t.names[kind] = map[string]*topic{}
		}
		of = &topic{pattern: pattern, at: map[Subscriber]int{}}
		t.names[kind][name] = of
	}
	if _, there := of.at[s]; !there {
		of.at[s] = len(of.subscribers)
		of.subscribers = append(of.subscribers, s)
	}
	return true
}

// roomLocked reports whether there is room for one more pattern.
func (t *Table) roomLocked(p *Pattern) bool {
	free := share{MaxPatterns - t.all.patterns - 1, MaxWork - t.all.work - p.Work}
	mine := t.users[p.User]
	return mine.patterns+1 <= shareFree*free.patterns && mine.work+p.Work <= shareFree*free.work
}

// takeLocked notes one more pattern, or with -1 one less.
func (t *Table) takeLocked(p *Pattern, n int) {
	mine := t.users[p.User]
	mine.patterns, mine.work = mine.patterns+n, mine.work+n*p.Work
	t.all.patterns, t.all.work = t.all.patterns+n, t.all.work+n*p.Work
	if t.users == nil {
		t.users = map[string]share{}
	}
	if t.users[p.User] = mine; mine.patterns == 0 {
		delete(t.users, p.User)
	}
}

// Unsubscribe takes a subscription away. Nothing is pushed by it any more.
func (t *Table) Unsubscribe(kind Kind, name string, s Subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.names[kind][name]
	if of == nil {
		return
	}
	at, there := of.at[s]
	if !there {
		return
	}
	last := len(of.subscribers) - 1
	moved := of.subscribers[last]
	of.subscribers[at], of.at[moved] = moved, at
	of.subscribers[last] = nil
	of.subscribers = of.subscribers[:last]
	delete(of.at, s)
	if last == 0 {
		if of.pattern != nil {
			t.takeLocked(of.pattern, -1)
		}
		delete(t.names[kind], name)
	}
}

// Publish pushes a message to all subscribers of its channel, and returns how many those are. One
// that has also subscribed to patterns gets it once more by each that matches, and counts as often.
func (t *Table) Publish(m *Message) (receivers int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	kind := Channels
	if m.Sharded {
		kind = Shards
	}
	if of := t.names[kind][string(m.Channel)]; of != nil {
		receivers += of.push(kind, string(m.Channel), m)
	}
	if m.Sharded {
		return receivers
	}
	for name, of := range t.names[Patterns] { //env:real patterns have no order among each other
		if of.pattern.Matches(m.Channel) {
			receivers += of.push(Patterns, name, m)
		}
	}
	return receivers
}

func (of *topic) push(kind Kind, name string, m *Message) int {
	for _, s := range of.subscribers {
		s.Push(kind, name, m)
	}
	return len(of.subscribers)
}

// Names returns how many names of a kind have subscribers.
func (t *Table) Names(kind Kind) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.names[kind])
}

// Subscribers returns how many have subscribed to a name.
func (t *Table) Subscribers(kind Kind, name []byte) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if of := t.names[kind][string(name)]; of != nil {
		return len(of.subscribers)
	}
	return 0
}

// List returns the names of a kind that wanted says is true for, in their order, and of those as
// many as have so many bytes, or until wanted says that it is enough; more reports that there are
// others, perhaps.
func (t *Table) List(kind Kind, wanted func(name []byte) (is, enough bool), most int) (names [][]byte, more bool) {
	t.mu.RLock()
	all := make([]string, 0, len(t.names[kind]))
	for name := range t.names[kind] { //env:real sorted below
		all = append(all, name)
	}
	t.mu.RUnlock()
	slices.Sort(all)
	for _, name := range all {
		b := []byte(name)
		is, enough := wanted(b)
		if is {
			if most -= len(b); most < 0 {
				return names, true
			}
			names = append(names, b)
		}
		if enough {
			return names, true
		}
	}
	return names, false
}
