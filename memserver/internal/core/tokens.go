package core

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Bounds of tokens.
const (
	tokenLife         = time.Minute
	maxTokensPerIndex = 1024 // that are not used yet
)

// ErrEvicting is returned when a token is requested for an index that is being evicted.
var ErrEvicting = errors.New("index is being evicted")

// tokens are the admission tickets that were issued and not used yet.
type tokens struct {
	env    env.Env
	random func() verbs.Token

	mu   env.Mutex
	open map[verbs.Token]ticket
	// oldest first, with some that are not open any more: at most as many as are open, and a few
	order    []verbs.Token
	count    map[string]int // open ones by index
	evicting map[string]int // by index: how many evictions are under way

	refused atomic.Uint64 // tokens that were shown and admit to nothing
}

// ticket is what a token admits to.
type ticket struct {
	peer     verbs.Peer
	provider string
	caller   Caller
	expires  time.Duration // on the env's clock
}

func newTokens(e env.Env, random func() verbs.Token) *tokens {
	return &tokens{env: e, random: random, mu: e.NewMutex(), open: map[verbs.Token]ticket{}, count: map[string]int{}, evicting: map[string]int{}}
}

// Caller is who asked for a token, and what for.
type Caller struct {
	// as its certificate says; empty where certificates are not asked for
	Identity string
	// the connection shall be under TLS, with a certificate of the same identity
	TLS bool
}

// issue returns a token that admits peer to one connection of a provider.
func (t *tokens) issue(peer verbs.Peer, provider string, caller Caller) (verbs.Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	if t.evicting[peer.Index] > 0 {
		return verbs.Token{}, fmt.Errorf("%w: %s", ErrEvicting, peer.Index)
	}
	if t.count[peer.Index] >= maxTokensPerIndex {
		return verbs.Token{}, fmt.Errorf("%w: %d tokens of index %s were not used yet; use them, or wait %v", ledger.ErrExhausted, maxTokensPerIndex, peer.Index, tokenLife)
	}
	t.compact()
	token := t.random()
	t.open[token] = ticket{peer, provider, caller, t.env.Now() + tokenLife}
	t.order = append(t.order, token)
	t.count[peer.Index]++
	return token, nil
}

// expire drops expired tokens. All live equally long, so the oldest expire first.
func (t *tokens) expire() {
	now, n := t.env.Now(), 0
	for n < len(t.order) {
		if ticket, ok := t.open[t.order[n]]; ok && now < ticket.expires {
			break
		}
		t.drop(t.order[n])
		n++
	}
	if n > 0 {
		t.order = append(t.order[:0], t.order[n:]...)
	}
}

// compact forgets used tokens when they are many. A client that uses each token at once may ask for
// the next one, and a fence or an eviction examines all of them while Connect waits, with the lock
// of the accounts.
func (t *tokens) compact() {
	const few = 64
	if len(t.order) < 2*len(t.open)+few {
		return
	}
	t.order = slices.DeleteFunc(t.order, func(token verbs.Token) bool {
		_, open := t.open[token]
		return !open
	})
}

func (t *tokens) drop(token verbs.Token) {
	ticket, ok := t.open[token]
	if !ok {
		return
	}
	delete(t.open, token)
	if t.count[ticket.peer.Index]--; t.count[ticket.peer.Index] == 0 {
		delete(t.count, ticket.peer.Index)
	}
}

// block begins an eviction: the tokens of an index are void, and it gets no further ones until
// unblock.
func (t *tokens) block(index string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evicting[index]++
	for _, token := range t.order {
		if t.open[token].peer.Index == index {
			t.drop(token)
		}
	}
}

// void voids the tokens of clients of an index.
func (t *tokens) void(index string, clients []uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, token := range t.order {
		if peer := t.open[token].peer; peer.Index == index && slices.Contains(clients, peer.Client) {
			t.drop(token)
		}
	}
}

func (t *tokens) unblock(index string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.evicting[index]--; t.evicting[index] == 0 {
		delete(t.evicting, index)
	}
}

// admission is the verbs.Admission of one provider. Tokens for another provider are not valid for
// it.
type admission struct {
	tokens   *tokens
	provider string
	whose    func(*tls.ConnectionState) (identity string, err error)
}

// Admit implements verbs.Admission: connections in the clear.
func (a admission) Admit(token verbs.Token) (verbs.Peer, error) {
	return a.count(a.admit(token, nil))
}

// AdmitTLS implements verbs.TLSAdmission: connections whose certificate the handshake has verified.
// A token that was meant for the other kind is not used up. Whoever may have read it on its way
// gets no connection by it.
func (a admission) AdmitTLS(token verbs.Token, state *tls.ConnectionState) (verbs.Peer, error) {
	who, err := a.whose(state)
	if err != nil {
		return a.count(verbs.Peer{}, fmt.Errorf("%w: %w", verbs.ErrRefused, err))
	}
	return a.count(a.admit(token, &who))
}

// count counts those who are refused.
func (a admission) count(peer verbs.Peer, err error) (verbs.Peer, error) {
	if err != nil {
		a.tokens.refused.Add(1)
	}
	return peer, err
}

// admit uses a token up for a connection in the clear, or for one of who.
func (a admission) admit(token verbs.Token, who *string) (verbs.Peer, error) {
	t := a.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	ticket, ok := t.open[token]
	switch {
	case !ok:
		return verbs.Peer{}, fmt.Errorf("%w: it is unknown, used or older than %v", verbs.ErrRefused, tokenLife)
	case ticket.provider != a.provider:
		return verbs.Peer{}, fmt.Errorf("%w: it is for %s, not for %s", verbs.ErrRefused, ticket.provider, a.provider)
	case ticket.caller.TLS != (who != nil):
		return verbs.Peer{}, fmt.Errorf("%w: it is for a connection with TLS (%v)", verbs.ErrRefused, ticket.caller.TLS)
	case who != nil && *who != ticket.caller.Identity:
		return verbs.Peer{}, fmt.Errorf("%w: it was given to another identity than that of the connection, %s", verbs.ErrRefused, *who)
	}
	t.drop(token)
	if t.env.Now() >= ticket.expires {
		return verbs.Peer{}, fmt.Errorf("%w: it is older than %v", verbs.ErrRefused, tokenLife)
	}
	return ticket.peer, nil
}
