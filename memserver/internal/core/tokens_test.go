package core

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// clock is a real env whose time only tests move.
type clock struct {
	env.Env
	now time.Duration
}

func newClock() *clock { return &clock{Env: env.Real(), now: 1000 * time.Second} }

// Now implements env.Env.
func (c *clock) Now() time.Duration { return c.now }

func TestTokens(t *testing.T) {
	c := newClock()
	tokens := newTokens(c, newToken)
	tcp, shm := admission{tokens, "tcp", nil}, admission{tokens, "shm", nil}
	a, b := verbs.Peer{Index: "a", Client: 1}, verbs.Peer{Index: "b", Client: 2}
	refused := func(what string, by admission, token verbs.Token) {
		t.Helper()
		if peer, err := by.Admit(token); !errors.Is(err, verbs.ErrRefused) || peer != (verbs.Peer{}) {
			t.Errorf("%s: %v, %v", what, peer, err)
		}
	}
	admitted := func(what string, by admission, token verbs.Token, want verbs.Peer) {
		t.Helper()
		if peer, err := by.Admit(token); err != nil || peer != want {
			t.Errorf("%s: %v, %v", what, peer, err)
		}
	}
	refused("a token of nobody", tcp, verbs.Token{})
	token := must(tokens.issue(a, "tcp", Caller{}))
	refused("another provider", shm, token)
	admitted("good", tcp, token, a)
	refused("used", tcp, token)

	token = must(tokens.issue(a, "tcp", Caller{}))
	c.now += tokenLife - 1
	admitted("just in time", tcp, token, a)
	token = must(tokens.issue(a, "tcp", Caller{}))
	c.now += tokenLife
	refused("too old", tcp, token)

	// Evictions: tokens of that index are void, and there are none until both evictions are over.
	token, other := must(tokens.issue(a, "tcp", Caller{})), must(tokens.issue(b, "shm", Caller{}))
	tokens.block("a")
	tokens.block("a")
	refused("evicted", tcp, token)
	tokens.unblock("a")
	if _, err := tokens.issue(a, "tcp", Caller{}); !errors.Is(err, ErrEvicting) {
		t.Errorf("during an eviction: %v", err)
	}
	tokens.unblock("a")
	must(tokens.issue(a, "tcp", Caller{}))
	admitted("another index", shm, other, b)

	// Fencing: the tokens of these clients are void, and nobody else's.
	token, other = must(tokens.issue(a, "tcp", Caller{})), must(tokens.issue(b, "tcp", Caller{}))
	second := must(tokens.issue(verbs.Peer{Index: "a", Client: 2}, "tcp", Caller{}))
	tokens.void("a", []uint16{1, 9})
	refused("fenced", tcp, token)
	admitted("another client", tcp, second, verbs.Peer{Index: "a", Client: 2})
	admitted("another index", tcp, other, b)

	// Bounds: of each index by itself, and what is over makes room.
	c.now += tokenLife
	for range maxTokensPerIndex {
		must(tokens.issue(a, "tcp", Caller{}))
	}
	if _, err := tokens.issue(a, "tcp", Caller{}); !errors.Is(err, ledger.ErrExhausted) {
		t.Errorf("too many: %v", err)
	}
	admitted("the other index", tcp, must(tokens.issue(b, "tcp", Caller{})), b)
	c.now += tokenLife
	must(tokens.issue(a, "tcp", Caller{}))
	if len(tokens.open) != 1 || len(tokens.order) != 1 || len(tokens.count) != 1 {
		t.Errorf("%d open, %d in order, %d indexes remain", len(tokens.open), len(tokens.order), len(tokens.count))
	}
}

// TestUsedTokens: tokens that were used or are void take no room.
func TestUsedTokens(t *testing.T) {
	c := newClock()
	tokens := newTokens(c, newToken)
	kept := must(tokens.issue(verbs.Peer{Index: "b", Client: 1}, "tcp", Caller{}))
	for i := range 10_000 {
		peer := verbs.Peer{Index: "a", Client: 1}
		token := must(tokens.issue(peer, "tcp", Caller{}))
		if i%2 == 0 {
			must(admission{tokens, "tcp", nil}.Admit(token))
		} else {
			tokens.void("a", []uint16{1})
		}
		if n := len(tokens.order); n > 100 {
			t.Fatalf("%d tokens are kept of one that is open", n)
		}
	}
	must(admission{tokens, "tcp", nil}.Admit(kept))
}
