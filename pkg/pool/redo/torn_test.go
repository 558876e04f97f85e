package redo

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/sum/crctest"
)

// TestTornChosenBatch: the records of a batch differ from those that the ring had there a round
// before in several places, in each by what a CRC-32C does not see. Their client died while it
// wrote the batch: any words of it may be there, and the others are those of the round before. Only
// the whole batch is replayed.
func TestTornChosenBatch(t *testing.T) {
	const position, words = 1 << 20, 5
	sums := sumsOf(77)
	batch := append(make([]byte, batchHead), bytes.Repeat([]byte("a record"), words)...)
	before := bytes.Clone(batch)
	crctest.Change(before, 16, 24, 32, 40, 48)
	sealBatch(sums, position, batch)
	for old := range 1 << words { // which words are from the round before
		torn := bytes.Clone(batch)
		for i := range words {
			if at := batchHead + 8*i; old>>i&1 != 0 {
				copy(torn[at:at+8], before[at:])
			}
		}
		if _, ok := verifyBatch(sums, position, torn); ok != (old == 0) {
			t.Errorf("words %05b are from the round before: the batch verifies: %v", old, ok)
		}
	}
	if _, ok := verifyBatch(sumsOf(78), position, batch); ok {
		t.Error("a batch verifies in another log")
	}
	if _, ok := verifyBatch(sums, position+8, batch); ok {
		t.Error("a batch verifies at another position")
	}
	full := make([]byte, batchBytes)
	sealBatch(sums, position, full)
	if _, ok := verifyBatch(sums, position, full); !ok {
		t.Error("the longest batch does not verify")
	}
}
