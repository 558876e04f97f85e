package resp

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/pubsub"
	"github.com/dmindex/dmindex/computeserver/users"
)

// Bounds of the subscriptions of one connection.
const (
	maxSubscriptions = 10_000
	maxOwnPatterns   = 1_000 // each of them is looked at for each message of the server
	subscribedBytes  = 512   // what a subscription takes, beside its name
	patternBytes     = 32    // what a pattern takes for each of its bytes
)

// subscriptionBytes is what a subscription takes.
func subscriptionBytes(kind pubsub.Kind, name int) int {
	if kind == pubsub.Patterns {
		return subscribedBytes + name*(1+patternBytes)
	}
	return subscribedBytes + name
}

// kindPrefix is what the words of a kind of subscription begin with.
var kindPrefix = [pubsub.Kinds]string{pubsub.Channels: "", pubsub.Patterns: "p", pubsub.Shards: "s"}

// Publish gives a message to the subscribers of this server. It returns how many they are.
func (s *Server) Publish(m *pubsub.Message) (receivers int) { return s.topics.Publish(m) }

// Subscriptions says to what connections of this server have subscribed.
func (s *Server) Subscriptions(ask *rpcv1.ListSubscriptionsRequest) *rpcv1.ListSubscriptionsReply {
	kind := pubsub.Channels
	if ask.Sharded {
		kind = pubsub.Shards
	}
	of := &rpcv1.ListSubscriptionsReply{Patterns: uint64(s.topics.Names(pubsub.Patterns))}
	if ask.List {
		of.Channels, of.More = s.topics.List(kind, lister(ask.Pattern), mostListed)
	}
	for _, channel := range ask.Channels {
		of.Subscribers = append(of.Subscribers, uint64(s.topics.Subscribers(kind, channel)))
	}
	return of
}

// Bounds of what PUBSUB CHANNELS lists of one server: bytes of channels, and comparisons.
const (
	mostListed   = 4 << 20
	mostCompares = 64 << 20
)

// matcher is which channels a pattern matches.
func matcher(pattern []byte) *pubsub.Pattern {
	g := newGlob(pattern, pubsub.MaxName)
	return &pubsub.Pattern{Work: g.work(), Matches: func(channel []byte) bool { matched, _ := g.match(channel); return matched }}
}

// lister is which channels a pattern matches, until that has taken mostCompares.
func lister(pattern []byte) func(channel []byte) (is, enough bool) {
	g, left := newGlob(pattern, pubsub.MaxName), mostCompares
	return func(channel []byte) (is, enough bool) {
		is, steps := g.match(channel)
		left -= steps
		return is, left < 0
	}
}

func (c *conn) cmdSubscribe(args [][]byte)    { c.subscribe(pubsub.Channels, args[1:]) }
func (c *conn) cmdPSubscribe(args [][]byte)   { c.subscribe(pubsub.Patterns, args[1:]) }
func (c *conn) cmdSSubscribe(args [][]byte)   { c.subscribe(pubsub.Shards, args[1:]) }
func (c *conn) cmdUnsubscribe(args [][]byte)  { c.unsubscribe(pubsub.Channels, args[1:]) }
func (c *conn) cmdPUnsubscribe(args [][]byte) { c.unsubscribe(pubsub.Patterns, args[1:]) }
func (c *conn) cmdSUnsubscribe(args [][]byte) { c.unsubscribe(pubsub.Shards, args[1:]) }

// subscribe subscribes to all names, or refuses the command.
func (c *conn) subscribe(kind pubsub.Kind, names [][]byte) {
	if !c.maySubscribe(kind, names) { // which EXEC may have to ask again
		c.replyError(errNoChannel)
		return
	}
	if err := c.roomForSubscriptions(kind, names); err != nil {
		c.refuseCommand(err)
		return
	}
	s := c.subscribes()
	for _, b := range names {
		name := string(b)
		var pattern *pubsub.Pattern
		if kind == pubsub.Patterns {
			pattern = matcher(b)
			pattern.User = text(&c.who.user)
		}
		if !c.s.topics.Subscribe(kind, name, pattern, s) {
			c.leaveIfNone()
			c.replyError(fmt.Sprintf("ERR connections of this server, or those of this user, have subscribed to as many patterns as possible: a server has %d, and fewer of those with much behind their first *, of which one user may take three quarters; subscribe to channels", pubsub.MaxPatterns))
			return
		}
		if s.names[kind] == nil {
			s.names[kind] = map[string]struct{}{}
		}
		if _, there := s.names[kind][name]; !there {
			s.names[kind][name] = struct{}{}
			s.bytes += subscriptionBytes(kind, len(name))
			c.who.subscriptions[kind].Add(1)
		}
		c.confirm(kind, "subscribe", b)
	}
	c.account.force(holdSubscriptions, s.bytes)
	c.tally.Count(count.OK)
}

// roomForSubscriptions returns an error if there is no room for so many more.
func (c *conn) roomForSubscriptions(kind pubsub.Kind, names [][]byte) error {
	of, patterns, held := 0, 0, 0
	if s := c.sub; s != nil {
		of, patterns, held = s.count(true)+s.count(false), len(s.names[pubsub.Patterns]), s.bytes
	}
	for _, name := range names {
		if len(name) > pubsub.MaxName {
			return errorReply(fmt.Sprintf("ERR the name of a channel, or a pattern, has at most %d bytes, this one has %d", pubsub.MaxName, len(name)))
		}
		if s := c.sub; s != nil {
			if _, there := s.names[kind][string(name)]; there {
				continue
			}
		}
		of++
		held += subscriptionBytes(kind, len(name))
		if kind == pubsub.Patterns {
			patterns++
		}
	}
	if of > maxSubscriptions || patterns > maxOwnPatterns {
		return errorReply(fmt.Sprintf("ERR a connection has at most %d subscriptions, of them %d to patterns; use further connections", maxSubscriptions, maxOwnPatterns))
	}
	return c.account.set(holdSubscriptions, held)
}

// unsubscribe ends the subscriptions to these names, or to all of a kind.
func (c *conn) unsubscribe(kind pubsub.Kind, names [][]byte) {
	c.tally.Count(count.OK)
	if len(names) == 0 {
		names = c.subscribed(kind)
		if len(names) == 0 {
			c.confirm(kind, "unsubscribe", nil)
			return
		}
	}
	for _, b := range names {
		c.forgetSubscription(kind, string(b))
		c.confirm(kind, "unsubscribe", b)
	}
	c.leaveIfNone()
}

// subscribed are the names of a kind to which the connection has subscribed, in their order.
func (c *conn) subscribed(kind pubsub.Kind) (names [][]byte) {
	if c.sub != nil {
		for _, name := range slices.Sorted(maps.Keys(c.sub.names[kind])) {
			names = append(names, []byte(name))
		}
	}
	return names
}

// forgetSubscription ends one subscription, if there is that one. What came by it stands before
// what is said next.
func (c *conn) forgetSubscription(kind pubsub.Kind, name string) {
	s := c.sub
	if s == nil {
		return
	}
	if _, there := s.names[kind][name]; there {
		c.s.topics.Unsubscribe(kind, name, s)
		delete(s.names[kind], name)
		s.bytes -= subscriptionBytes(kind, len(name))
		c.who.subscriptions[kind].Add(-1)
		c.takePushes()
	}
}

// leaveIfNone ends what the connection has for subscriptions, if it has none and does not monitor.
func (c *conn) leaveIfNone() {
	s := c.sub
	if s == nil {
		return
	}
	c.account.force(holdSubscriptions, s.bytes)
	if !s.listens() && !s.monitors {
		s.endSubscribing()
	}
}

// unsubscribeAll ends all subscriptions, and MONITOR, without a word.
func (c *conn) unsubscribeAll() {
	c.endMonitor()
	for kind := range pubsub.Kinds {
		for _, name := range c.subscribed(kind) {
			c.forgetSubscription(kind, string(name))
		}
	}
	c.leaveIfNone()
}

// confirm says that a subscription began, or ended, and how many there are; without a name, that
// there was none.
func (c *conn) confirm(kind pubsub.Kind, what string, name []byte) {
	b := redcon.AppendBulkString(appendPushHead(nil, c.resp3, 3), kindPrefix[kind]+what)
	if name == nil {
		b = c.appendNull(b)
	} else {
		b = redcon.AppendBulk(b, name)
	}
	c.appendPush(redcon.AppendInt(b, int64(c.sub.count(kind == pubsub.Shards))))
}

const errNoChannel = "NOPERM No permissions to access a channel"

// maySubscribe reports whether the user may subscribe to all names of a kind.
func (c *conn) maySubscribe(kind pubsub.Kind, names [][]byte) bool {
	u := c.login.User()
	return u != nil && !slices.ContainsFunc(names, func(name []byte) bool { return !mayHear(u, kind, name) })
}

// mayHear reports whether a user may subscribe to a name. A pattern has to begin with the prefix of
// a rule, so that it matches no other channels.
func mayHear(u *users.User, kind pubsub.Kind, name []byte) bool {
	if kind == pubsub.Patterns {
		return u.MayUseChannelsFrom(newGlob(name, pubsub.MaxName).prefix())
	}
	return u.MayUseChannel(name)
}

// mayGoOnHearing reports whether the user may still have the subscriptions of the connection, and
// monitor. It looks when the rights are others than last.
func (c *conn) mayGoOnHearing() bool {
	u := c.login.User()
	if c.sub == nil || c.heardAs == u {
		return true
	}
	c.heardAs = u
	if c.sub.monitors && !seesAll(u) {
		return false
	}
	for kind := range pubsub.Kinds {
		if !c.maySubscribe(kind, c.subscribed(kind)) {
			return false
		}
	}
	return true
}

// cmdPublish is PUBLISH and SPUBLISH. Commands of the pipeline before it are done first, and
// durable, so that a subscriber that reads what they wrote finds it.
func (c *conn) cmdPublish(args [][]byte) {
	if err := checkChannel(args[1]); err != nil {
		c.refuseCommand(err)
		return
	}
	if !c.login.User().MayUseChannel(args[1]) {
		c.replyError(errNoChannel)
		return
	}
	c.settle()
	c.replyInt(int64(c.s.publish(&pubsub.Message{Channel: bytes.Clone(args[1]), Payload: bytes.Clone(args[2]), Sharded: isWord(args[0], "SPUBLISH")})))
}

// checkChannel returns an error for a name that no channel has.
func checkChannel(name []byte) error {
	if len(name) > pubsub.MaxName {
		return errorReply(fmt.Sprintf("ERR the name of a channel has at most %d bytes, this one has %d", pubsub.MaxName, len(name)))
	}
	return nil
}

// publish gives a message of a client to the subscribers of all servers. It returns how many of
// this one get it.
func (s *Server) publish(m *pubsub.Message) (receivers int) {
	receivers = s.topics.Publish(m)
	s.core.Count.Published.Add(1)
	if s.relay != nil {
		s.relay(m)
	}
	return receivers
}

// cmdPubSub is PUBSUB: of all servers of the index.
func (c *conn) cmdPubSub(args [][]byte) {
	sub := args[1]
	sharded := isWord(sub, "SHARDCHANNELS") || isWord(sub, "SHARDNUMSUB")
	switch {
	case (isWord(sub, "CHANNELS") || isWord(sub, "SHARDCHANNELS")) && len(args) < 4:
		ask := &rpcv1.ListSubscriptionsRequest{Sharded: sharded, List: true, Pattern: []byte("*")}
		if len(args) == 3 {
			ask.Pattern = bytes.Clone(args[2][:min(len(args[2]), 2*pubsub.MaxName)])
		}
		c.pubSubChannels(ask)
	case isWord(sub, "NUMSUB") || isWord(sub, "SHARDNUMSUB"):
		c.pubSubCount(&rpcv1.ListSubscriptionsRequest{Sharded: sharded, Channels: cloneAll(args[2:])})
	case isWord(sub, "NUMPAT") && len(args) == 2:
		n := uint64(0)
		for _, of := range c.askSubscriptions(&rpcv1.ListSubscriptionsRequest{}) {
			n += of.Patterns
		}
		c.replyInt(int64(n))
	default:
		c.replyError(unknownSubcommand(sub, "CHANNELS, NUMPAT, NUMSUB, SHARDCHANNELS, SHARDNUMSUB"))
	}
}

// askSubscriptions asks all servers.
func (c *conn) askSubscriptions(ask *rpcv1.ListSubscriptionsRequest) []*rpcv1.ListSubscriptionsReply {
	all := []*rpcv1.ListSubscriptionsReply{c.s.Subscriptions(ask)}
	if c.s.askSubscriptions != nil {
		c.settle() // no session is held while others are waited for
		all = append(all, c.s.askSubscriptions(ask)...)
	}
	return all
}

func (c *conn) pubSubChannels(ask *rpcv1.ListSubscriptionsRequest) {
	var names [][]byte
	size := 0
	for _, of := range c.askSubscriptions(ask) {
		for _, name := range of.Channels {
			if c.login.User().MayUseChannel(name) {
				names = append(names, name)
				size += len(name) + argBytes
			}
		}
		if of.More || size > c.s.maxReply/2 {
			c.replyError("ERR there are too many channels for one reply; name a pattern that matches fewer, or has less behind its first *")
			return
		}
	}
	slices.SortFunc(names, bytes.Compare)
	names = slices.CompactFunc(names, bytes.Equal)
	if err := c.reserve(size); err != nil {
		c.fail(err)
		return
	}
	c.out = redcon.AppendArray(c.out, len(names))
	for _, name := range names {
		c.out = redcon.AppendBulk(c.out, name)
	}
	c.tally.Count(count.OK)
}

func (c *conn) pubSubCount(ask *rpcv1.ListSubscriptionsRequest) {
	size := 0
	for _, channel := range ask.Channels {
		if size += len(channel) + argBytes; !c.login.User().MayUseChannel(channel) {
			c.replyError(errNoChannel)
			return
		}
	}
	if size > mostAsked {
		c.replyError("ERR the names of the channels are too many for one command; ask for some of them")
		return
	}
	sums := make([]uint64, len(ask.Channels))
	for _, of := range c.askSubscriptions(ask) {
		for i := range min(len(sums), len(of.Subscribers)) {
			sums[i] += of.Subscribers[i]
		}
	}
	c.out = redcon.AppendArray(c.out, 2*len(sums))
	for i, n := range sums {
		c.out = redcon.AppendInt(redcon.AppendBulk(c.out, ask.Channels[i]), int64(n))
	}
	c.tally.Count(count.OK)
}

// mostAsked is how many bytes of names one command counts the subscribers of; other servers take no
// larger requests.
const mostAsked = 48 << 10

// listening is how many connections have subscriptions.
func (s *Server) listening() (n int) {
	for _, c := range s.connections() {
		if c.who.listens() {
			n++
		}
	}
	return n
}
