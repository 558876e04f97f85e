package verbstest

import (
	"encoding/binary"
	"fmt"

	"pgregory.net/rapid"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests against a model: a region is bytes, and requests take effect one after the other.
var modelTests = []test{
	{"RandomLists", randomLists},
}

const modelSize = 512

// randomLists posts random lists of one client on a small part of each region. Everything that G1
// leaves open is closed by a fence, so that there is one right answer.
func randomLists(f *fixture) {
	c := f.connect(1)
	q := f.qp(c)
	caps := c.Capabilities()
	buffers := make([][]byte, 12)
	for i := range buffers {
		buffers[i] = f.buffer(modelSize + 8)
	}
	var model [verbs.RegionLocks + 1][modelSize]byte
	rapid.Check(f.T, func(t *rapid.T) {
		n := rapid.IntRange(1, len(buffers)).Draw(t, "requests")
		list := make([]verbs.Request, n)
		want := make([][]byte, n)
		for i := range list {
			list[i] = drawRequest(t, &caps, buffers[i])
		}
		for i := range list { // once all is drawn: a draw may end the run
			want[i] = applyToModel(&model[list[i].Region], &list[i])
		}
		if err := verbs.Post(q, list); err != nil {
			t.Fatalf("post: %v", err)
		}
		for i := range list {
			if string(list[i].Local) != string(want[i]) {
				t.Fatalf("request %d, %v at %d:%d: local bytes %x, want %x",
					i, list[i].Op, list[i].Region, list[i].Remote, list[i].Local, want[i])
			}
		}
	})
	for id := range model {
		in := buffers[0][:modelSize]
		f.post(q, verbs.Request{Op: verbs.Read, Region: verbs.RegionID(id), Local: in})
		if string(in) != string(model[id][:]) {
			f.Fatalf("region %d differs from the model after all lists", id)
		}
	}
}

func drawRequest(t *rapid.T, caps *verbs.Capabilities, buffer []byte) verbs.Request {
	most := verbs.MaskedFetchAdd
	if !caps.MaskedAtomics {
		most = verbs.FetchAdd
	}
	word := rapid.Uint64()
	r := verbs.Request{
		Op:     rapid.Map(rapid.IntRange(0, int(most)), func(i int) verbs.Op { return verbs.Op(i) }).Draw(t, "op"),
		Region: rapid.SampledFrom([]verbs.RegionID{verbs.RegionData, verbs.RegionLocks}).Draw(t, "region"),
		Fence:  true,
	}
	if !r.Op.Atomic() {
		r.Remote = uint64(rapid.IntRange(0, modelSize-1).Draw(t, "remote"))
		length := rapid.IntRange(1, modelSize-int(r.Remote)).Draw(t, "length")
		r.Local = buffer[rapid.IntRange(0, 7).Draw(t, "offset"):][:length]
		if r.Op == verbs.Write {
			seed := rapid.Byte().Draw(t, "content")
			for i := range r.Local {
				r.Local[i] = seed + byte(i)*7
			}
		}
		return r
	}
	r.Remote = uint64(rapid.IntRange(0, modelSize/8-1).Draw(t, "word")) * 8
	r.Local = buffer[:8]
	r.Compare, r.Swap = word.Draw(t, "compare"), word.Draw(t, "swap")
	r.CompareMask, r.SwapMask = word.Draw(t, "compare mask"), word.Draw(t, "swap mask")
	r.Add, r.Boundary = word.Draw(t, "add"), word.Draw(t, "boundary")
	return r
}

// applyToModel applies r and returns what its local buffer holds afterwards. Every other swap is
// made to match.
func applyToModel(model *[modelSize]byte, r *verbs.Request) []byte {
	at := model[r.Remote:][:len(r.Local)]
	switch r.Op {
	case verbs.Read:
		return append([]byte(nil), at...)
	case verbs.Write:
		copy(at, r.Local)
		return append([]byte(nil), r.Local...)
	}
	old := binary.NativeEndian.Uint64(at)
	if r.Swap%2 == 0 {
		r.Compare = old
	}
	binary.NativeEndian.PutUint64(at, modelWord(old, r))
	return binary.NativeEndian.AppendUint64(nil, old)
}

// modelWord is what an atomic leaves behind, bit by bit: written anew, so as not to test
// verbs.MaskedSum against itself.
func modelWord(old uint64, r *verbs.Request) (word uint64) {
	switch r.Op {
	case verbs.FetchAdd:
		return old + r.Add
	case verbs.CompareSwap:
		if old == r.Compare {
			return r.Swap
		}
		return old
	case verbs.MaskedCompareSwap:
		word = old
		for i := range 64 {
			bit := uint64(1) << i
			if r.CompareMask&bit != 0 && old&bit != r.Compare&bit {
				return old
			}
			if r.SwapMask&bit != 0 {
				word = word&^bit | r.Swap&bit
			}
		}
		return word
	case verbs.MaskedFetchAdd:
		carry := uint64(0)
		for i := range 64 {
			sum := old>>i&1 + r.Add>>i&1 + carry
			word |= sum & 1 << i
			carry = sum >> 1
			if r.Boundary>>i&1 != 0 {
				carry = 0
			}
		}
		return word
	}
	panic(fmt.Sprintf("verbstest: no model of %v", r.Op))
}
