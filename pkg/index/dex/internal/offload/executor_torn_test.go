package offload

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/crctest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestExecutorTornEntry: a user replaces a value by one that differs in several places, in each by
// what a CRC-32C does not see. No call returns a mixture of them. An executor serves the clients of
// several indexes, and finds nothing by the secret of another one.
func TestExecutorTornEntry(t *testing.T) {
	x := new(Executor)
	calls := func(secret uint64) {
		l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 32, NodeBytes: 512})
		l.SetSecret(siphash.Key{K0: secret, K1: 1})
		key, at := bigEndian(30), btree.Way{Addr: testAddr}
		old := l.PutEntry(make([]byte, 40), key, bytes.Repeat([]byte("01234567"), 4))
		now := bytes.Clone(old)
		crctest.Change(now, 16, 24, 32)
		p := &slotted.Pairs{Lay: l, Image: append(make([]byte, fence.Grain), old...), List: []slotted.EntryAt{{Off: fence.Grain, N: 40}}}
		b := make([]byte, 512)
		slotted.Build(b, l, testAddr, &fence.Header{Version: 3, Rightmost: true, Low: l.Bottom, High: l.NoHigh()}, p, 0, 1)
		var leaf slotted.Leaf
		if !leaf.Open(l, testAddr, b) {
			t.Fatal("no leaf")
		}
		entry := slotted.SlotOffset(leaf.SlotWord(0))
		answer := make([]byte, answerFixed+512)
		for seen := range 8 { // which words of the value are new
			torn := bytes.Clone(b)
			for i := range 3 {
				if seen>>i&1 != 0 {
					copy(torn[entry+16+8*i:][:8], now[16+8*i:])
				}
			}
			n, err := x.Call(verbs.Peer{}, &bytesNear{b: torn}, requestOf(l, askEntry, at, key), answer)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]byte{true: foundEntry, false: noWay}[seen == 0]; answer[atOutcome] != want || seen == 0 && !bytes.Equal(answer[answerFixed:n], old) {
				t.Errorf("secret %d, words %03b are new: outcome %d, want %d", secret, seen, answer[atOutcome], want)
			}
		}
		l.SetSecret(siphash.Key{K0: secret + 1, K1: 1})
		if _, err := x.Call(verbs.Peer{}, &bytesNear{b: b}, requestOf(l, askEntry, at, key), answer); err != nil || answer[atOutcome] != noWay {
			t.Errorf("by the secret of another index: outcome %d, %v", answer[atOutcome], err)
		}
	}
	for secret := range uint64(3) {
		calls(secret + 1)
	}
	calls(1)
}

// TestExecutorKeepsKeys: a server of several indexes expands no key for a call of each in turn. One
// that takes the place of another's gets its own.
func TestExecutorKeepsKeys(t *testing.T) {
	x, content := new(Executor), []byte("an entry")
	one, beside, instead := siphash.Key{K0: 1, K1: 2}, siphash.Key{K0: 65, K1: 2}, siphash.Key{K0: 2, K1: 66}
	first, second := x.sumsOf(one), x.sumsOf(beside)
	if x.sumsOf(one) != first || x.sumsOf(beside) != second {
		t.Error("the key of an index was expanded again after a call of another one")
	}
	for _, secret := range []siphash.Key{one, instead, beside, instead, one} {
		if got, want := x.sumsOf(secret).Of(7, content), sum.NewKey(secret).Of(7, content); got != want {
			t.Errorf("secret %v: sum %#x, want %#x", secret, got, want)
		}
	}
}
